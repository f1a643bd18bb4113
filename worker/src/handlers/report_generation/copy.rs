//! The copy of a report in a directory: whole or not at all, under a name that stays inside.

use std::io;
use std::path::Path;

use shared::store::NewArtifact;
use tokio::fs::{self, File, OpenOptions};
use tokio::io::AsyncWriteExt as _;
use uuid::Uuid;

/// Longest part of a file name, in bytes.
const MAX_PART: usize = 100;

/// Writes a copy and answers its name: a temporary file, synced, then renamed over the old one.
pub(super) async fn write(directory: &Path, artifact: &NewArtifact) -> io::Result<String> {
    fs::create_dir_all(directory).await?;
    let name = file_name(artifact);
    let temporary = directory.join(format!(".{name}.{}", Uuid::new_v4().simple()));
    let written = fill(&temporary, &artifact.content).await;
    let renamed = match written {
        Ok(()) => fs::rename(&temporary, directory.join(&name)).await,
        Err(error) => Err(error),
    };
    if let Err(error) = renamed {
        // A leftover is harmless, and the first error is the one to tell.
        let _ = fs::remove_file(&temporary).await;
        return Err(error);
    }
    // Without this the new name may not survive a power cut.
    File::open(directory).await?.sync_all().await?;
    Ok(name)
}

async fn fill(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path).await?;
    file.write_all(content).await?;
    file.sync_all().await
}

fn file_name(artifact: &NewArtifact) -> String {
    let extension = match artifact.content_type.split(';').next().unwrap_or_default().trim() {
        "text/markdown" => "md",
        "text/html" => "html",
        "text/csv" => "csv",
        "text/plain" => "txt",
        "application/json" => "json",
        _ => "bin",
    };
    format!("{}-{}.{extension}", part(&artifact.report), part(&artifact.date))
}

/// Letters, digits and `.-_`; never hidden, never upwards.
fn part(text: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let part: String = text.chars().map(safe).take(MAX_PART).collect();
    part.trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(report: &str, date: &str, content_type: &str) -> NewArtifact {
        NewArtifact {
            report: report.to_owned(),
            date: date.to_owned(),
            content_type: content_type.to_owned(),
            content: b"hello".to_vec(),
        }
    }

    #[test]
    fn a_name_stays_in_its_directory() {
        let name = |report, date| file_name(&artifact(report, date, "text/markdown"));
        assert_eq!(name("orders", "2026-11-30"), "orders-2026-11-30.md");
        assert_eq!(name("orders", "2026-11-30T18:00:00Z"), "orders-2026-11-30T18_00_00Z.md");
        assert_eq!(name("../../etc/passwd", "/"), "_.._etc_passwd-_.md");
        assert_eq!(name(".hidden", ".."), "hidden-.md");
        let long = "x".repeat(500);
        assert!(name(&long, &long).len() < 255);
        assert_eq!(file_name(&artifact("a", "b", "text/html; charset=utf-8")), "a-b.html");
    }

    #[tokio::test]
    async fn a_copy_replaces_the_old_one_and_leaves_nothing_behind() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("reports");
        for _ in 0..2 {
            let name = write(&path, &artifact("a", "b", "text/plain")).await.expect("written");
            assert_eq!(std::fs::read(path.join(&name)).expect("a file"), b"hello");
        }
        assert_eq!(std::fs::read_dir(&path).expect("listed").count(), 1);
    }
}
