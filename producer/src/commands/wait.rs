//! Waiting for a task's end, and what that end means for the exit code.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shared::domain::task::{TaskId, TaskState};
use shared::store::{Store, TaskRow};

use super::error::{Answer, CommandError};

/// First pause between two looks; doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// A database that is away this long ends the wait, where the wait itself has no end.
const OUTAGE: Duration = Duration::from_mins(1);

/// The task at its end, or as it stands when the time is over.
pub async fn finished(
    store: &Store,
    id: TaskId,
    limit: Option<Duration>,
) -> Result<TaskRow, CommandError> {
    let started = Instant::now();
    let mut answered = started;
    let mut pause = FIRST_PAUSE;
    loop {
        let left = limit.map(|limit| limit.saturating_sub(started.elapsed()));
        match store.task(id).await {
            Ok(Some(task)) if task.summary.state.is_finished() => return Ok(task),
            Ok(Some(task)) if left == Some(Duration::ZERO) => return Ok(task),
            Ok(Some(_)) => answered = Instant::now(),
            Ok(None) => return Err(unknown(id)),
            // A restart of the database must not end a wait that has time left.
            Err(error) => {
                let patience = left.unwrap_or(OUTAGE).min(OUTAGE);
                if !error.is_unreachable() || patience.is_zero() || answered.elapsed() > OUTAGE {
                    return Err(error.into());
                }
            }
        }
        tokio::time::sleep(left.map_or(pause, |left| pause.min(left))).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Exit code 5 unless it completed.
pub fn verdict(task: &TaskRow) -> Answer {
    let summary = &task.summary;
    let id = summary.task_id;
    let said = match summary.state {
        TaskState::Completed => return Ok(()),
        TaskState::Dead => format!("task {id} is dead: {}", failure(task)),
        TaskState::Cancelled => format!("task {id} was cancelled"),
        state => format!(
            "the time is over and task {id} is still {state}; it goes on, `producer tasks why {id}` \
             says where it stands"
        ),
    };
    Err(CommandError::NotCompleted(said))
}

/// Class and message of the last attempt's failure, for people.
pub fn failure(task: &TaskRow) -> String {
    let class = task.summary.error_class.as_deref().unwrap_or("unknown");
    let message = task.summary.error_message.as_deref().unwrap_or("no message was kept");
    format!("{class}: {message}")
}

/// The same as JSON: `{"class","message"}`, or null.
pub fn error_json(task: &TaskRow) -> Value {
    match &task.summary.error_class {
        Some(class) => json!({ "class": class, "message": task.summary.error_message }),
        None => Value::Null,
    }
}

/// There is no such task.
pub fn unknown(id: TaskId) -> CommandError {
    CommandError::NotFound(format!(
        "there is no task {id}; `producer tasks list` shows the newest, and finished ones are \
         pruned after retention.completed"
    ))
}
