//! What a CronJob's pod runs, as the one program that a task is.
//!
//! Whatever a task would not do the same is a doubt, and its entry paused; the program is never guessed.

use serde_json::json;

use super::part::Part;
use crate::commands::schedules::import::{Entry, command};

/// Keys of a container without which its program does something else.
const PREMISES: [&str; 3] = ["env", "envFrom", "workingDir"];

/// Task type and payload.
pub(super) fn work(pod: &Part<'_>, entry: &mut Entry) -> Result<(), String> {
    pod.take("restartPolicy");
    let containers = pod.list("containers")?;
    let Some(first) = containers.first() else {
        return Err("its pod has no container".to_owned());
    };
    if containers.len() > 1 {
        let last = containers.len() - 1;
        entry.doubt(format!("containers[1] to [{last}] ran beside its program, and are lost"));
    }
    if !pod.list("initContainers")?.is_empty() {
        entry.doubt("initContainers ran before its program, and are lost");
    }
    let container = Part::of(first, "containers[0]");
    container.take("name");
    let image = container.text("image")?.unwrap_or("an unnamed image");
    container.take("imagePullPolicy");
    entry.lose(format!("the image {image}"));
    program(&container, image, entry)?;
    for key in PREMISES {
        if container.take(key).is_some() {
            entry.doubt(format!("containers[0].{key} is not carried over"));
        }
    }
    for key in container.rest() {
        entry.lose(key);
    }
    Ok(())
}

fn program(container: &Part<'_>, image: &str, entry: &mut Entry) -> Result<(), String> {
    let (program, arguments) = (container.texts("command")?, container.texts("args")?);
    let is_known = !program.is_empty();
    let words: Vec<String> = program.into_iter().chain(arguments).collect();
    match words.as_slice() {
        words if !is_known => {
            entry.doubt("its program is the image's own and is not known: write it");
            let unknown = std::iter::once(format!("/the/program/of/{image}"));
            let words: Vec<String> = unknown.chain(words.iter().cloned()).collect();
            entry.set("task_type", "command");
            entry.set("payload", json!({ "argv": words }));
        }
        // To a shell `$(…)` is a command of its own, unless the container's variables say otherwise.
        [shell, option, script] if is_shell(shell) && option == "-c" => {
            command::line(script, None, entry);
        }
        words => {
            if words.iter().any(|word| word.contains("$(")) {
                entry.doubt("references such as $(NAME) to the container's variables stay as text");
            }
            command::arguments(words, entry);
        }
    }
    Ok(())
}

fn is_shell(program: &str) -> bool {
    matches!(program, "sh" | "/bin/sh" | "bash" | "/bin/bash")
}
