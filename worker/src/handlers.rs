//! The task types of the house, by name. Adding one touches this list and its own file.

mod agent_session;
mod db_query;
mod http_call;
mod model_invoke;
mod probe;
mod report_generation;
mod web;

use shared::config::Config;
use shared::domain::payloads::{Payload, Probe as ProbePayload};
use shared::store::source::Sources;

use crate::handler::Handlers;
use agent_session::AgentSession;
use db_query::DbQuery;
use http_call::HttpCall;
use model_invoke::ModelInvoke;
use probe::Probe;
use report_generation::ReportGeneration;
use web::Web;

/// All of them. The probe, which can kill its process, is there only where a pool lists it.
pub fn all(config: &Config) -> Handlers {
    let (web, sources) = (Web::new(&config.http), Sources::open(config));
    let handlers = Handlers::new()
        .with(AgentSession)
        .with(DbQuery::new(sources.clone()))
        .with(HttpCall::new(web.clone()))
        .with(ModelInvoke)
        .with(ReportGeneration::new(web, sources));
    let lists_probe =
        config.pools.iter().any(|pool| pool.task_types.iter().any(|it| it == ProbePayload::TYPE));
    if lists_probe { handlers.with(Probe) } else { handlers }
}
