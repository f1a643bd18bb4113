//! A process with a proxy in its environment: calls the given URL as a payload would, and a model
//! as configuration would.

use std::time::Duration;

use shared::config::HttpGuard;
use shared::http::{self, Call, Guard};
use tokio::time::Instant;

#[tokio::main]
async fn main() {
    let target = std::env::args().nth(1).expect("a URL");
    let soon = Instant::now() + Duration::from_secs(20);
    let open = HttpGuard { allow_hosts: Vec::new(), allow_private: true };
    let client = http::payload_client(&Guard::new(&open).expect("guard")).expect("client");
    client.send(Call::get(&target).expect("url"), soon).await.expect("direct");
    let trusted = http::trusted_client().expect("client").get("http://model.example/");
    http::send(trusted, soon).await.expect("by the proxy");
}
