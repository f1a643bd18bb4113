//! The handlers against a real PostgreSQL and the stub: what an attempt brings, and what it leaves.

#[path = "handlers/cases.rs"]
mod cases;
#[path = "handlers/chat.rs"]
mod chat;
#[path = "handlers/house.rs"]
mod house;
#[path = "handlers/http.rs"]
mod http;
#[path = "handlers/quality.rs"]
mod quality;
#[path = "handlers/report.rs"]
mod report;
#[path = "handlers/stand_in.rs"]
mod stand_in;
