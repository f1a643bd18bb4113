//! Agent sessions on real workers: killed at every step, told to stop, cancelled, handed over.

#[path = "../fleet/house.rs"]
#[expect(dead_code, reason = "the house serves several tests")]
mod house;
#[path = "../fleet/programs.rs"]
mod programs;

mod ends;
mod killed;

use std::time::Duration;

use loadtest::stub_llm::Fault;
use serde_json::{Value, json};
use shared::domain::task::{NewTask, TaskId};

use crate::house::{House, of};

/// Between a request and its answer, at the model and at the tool: time to strike.
const THINKING: Duration = Duration::from_millis(700);

/// A house whose worker runs sessions, and whose outside is the model too.
async fn house(name: &str) -> House {
    let yaml = "
model: {base_url: STUB, api_key: k, timeout: 30s}
task_pools:
  io_pool: {max_workers: 2, task_types: [agent_session]}
";
    let house = House::with(name, yaml).await;
    let slow =
        Fault { hang_ms: THINKING.as_millis() as u64, times: Some(1000), ..Fault::default() };
    house.outside.script("stub-session", vec![slow]);
    house
}

/// A session by its plan: how many effects each turn leaves.
fn session(house: &House, effects: &[usize]) -> NewTask {
    let call = json!({"tool": "leave_effect", "arguments": {}});
    let plan: Vec<Value> = effects.iter().map(|&count| vec![call.clone(); count].into()).collect();
    let url = format!("{}/effects?quiet=true&ms={}", house.outside.url, THINKING.as_millis());
    of(
        "agent_session",
        json!({
            "goal": format!("Do it. {}", json!({ "plan": plan })),
            "model": "stub-session",
            "tools": [{
                "name": "leave_effect", "task_type": "http_call",
                "payload": {"url": url, "method": "POST"},
            }],
            "limits": {"steps": 40},
        }),
    )
}

/// Calls of the model and of the tool at the stub, answered or not.
fn calls(house: &House) -> usize {
    house.outside.calls().len() + house.outside.effects().values().sum::<u64>() as usize
}

/// Calls of the task's journal by their state.
async fn journal(house: &House, task: TaskId, state: &str) -> usize {
    let row = house.row(task).await;
    let calls = row.llm_calls.as_array().cloned().unwrap_or_default();
    calls.iter().filter(|call| call["state"] == state).count()
}
