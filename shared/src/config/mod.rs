//! `belfry.yaml` and the conventional environment variables: what every binary reads at its door.
//!
//! Loading never stops at the first problem: all are listed, with line and path, and the process
//! ends with exit code 2. The variables are listed in each struct's file.

mod types;

pub use types::*;
