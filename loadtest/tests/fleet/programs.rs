//! The programs that the fleet runs, as built beside the tests.

use std::path::Path;
use std::time::SystemTime;

use loadtest::fleet::Role;

/// Cargo builds a test's own programs only, and an old worker would tell an old story.
pub fn are_fresh() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let advice = "run `cargo build --workspace --bins`, then this test again";
    for role in [Role::Producer, Role::Worker] {
        let own = format!("{}/src", role.program());
        let sources = [own.as_str(), "shared/src", "migrations"];
        let newest = sources.iter().map(|folder| newest_in(&root.join(folder))).max();
        let built = role.path().and_then(|path| Ok(path.metadata()?.modified()?));
        let built = built.unwrap_or_else(|error| panic!("{error:#}; {advice}"));
        assert!(Some(built) >= newest, "{} is older than its source; {advice}", role.program());
    }
}

fn newest_in(folder: &Path) -> SystemTime {
    let entries = std::fs::read_dir(folder).expect("a folder of sources").map(|entry| {
        let entry = entry.expect("readable");
        if entry.path().is_dir() {
            return newest_in(&entry.path());
        }
        entry.metadata().and_then(|file| file.modified()).expect("a file's time")
    });
    entries.max().unwrap_or(SystemTime::UNIX_EPOCH)
}
