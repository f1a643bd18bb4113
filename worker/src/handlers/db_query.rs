//! `db_query`: one statement on a named source; its rows are the result.

use async_trait::async_trait;
use serde_json::{Value, json};
use shared::domain::outcome::TaskError;
use shared::domain::payloads::{self, Payload};
use shared::store::source::Sources;

use crate::context::Context;
use crate::handler::Handler;

/// See the module.
pub(super) struct DbQuery {
    sources: Sources,
}

impl DbQuery {
    pub fn new(sources: Sources) -> Self {
        Self { sources }
    }
}

#[async_trait]
impl Handler for DbQuery {
    fn task_type(&self) -> &'static str {
        payloads::DbQuery::TYPE
    }

    fn summary(&self) -> &'static str {
        "one query on a named database; its rows are the result"
    }

    fn schema(&self) -> Value {
        payloads::DbQuery::schema()
    }

    fn check(&self, payload: &Value) -> Result<(), String> {
        payloads::DbQuery::read(payload).map(drop)
    }

    async fn run(&self, _context: &Context, payload: Value) -> Result<Value, TaskError> {
        let asked = payloads::DbQuery::read(&payload).map_err(TaskError::invalid)?;
        let rows = self.sources.query_json(&asked.source, &asked.sql, &asked.params).await?;
        Ok(json!({"row_count": rows.len(), "rows": rows}))
    }
}
