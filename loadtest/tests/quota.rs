//! Real workers under one limit: what the endpoint sees, whatever starts, stops and dies meanwhile.

#[path = "quota/budget.rs"]
mod budget;
#[path = "quota/house.rs"]
mod house;
#[path = "fleet/programs.rs"]
mod programs;
#[path = "quota/provider.rs"]
mod provider;
#[path = "quota/rate.rs"]
mod rate;
