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
#[path = "handlers/quota.rs"]
mod quota;
#[path = "handlers/report.rs"]
mod report;
#[path = "handlers/session.rs"]
mod session;
#[path = "handlers/session_limits.rs"]
mod session_limits;
#[path = "handlers/stand_in.rs"]
mod stand_in;
#[path = "handlers/steps.rs"]
mod steps;
