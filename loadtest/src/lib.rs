//! The outsider: it measures and attacks the house through its front doors, and never lives in it.

pub mod database;
pub mod drill;
pub mod fleet;
pub mod ledger;
pub mod proxy;
pub mod report;
pub mod schedules;
pub mod stub_llm;
pub mod throughput;
