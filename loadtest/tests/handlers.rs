//! The handlers against a real PostgreSQL and the stub: what an attempt brings, and what it leaves.

#[path = "handlers/chat.rs"]
mod chat;
#[path = "handlers/house.rs"]
mod house;
#[path = "handlers/http.rs"]
mod http;
#[path = "handlers/quota.rs"]
mod quota;
#[path = "handlers/report.rs"]
mod report;
