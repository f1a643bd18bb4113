//! A TCP proxy before the broker that can cut its connections, and be gone.

use shared::shutdown::Shutdown;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::house::amqp_url;

/// Forwards to the broker under test.
pub struct Proxy {
    pub port: u16,
    open: CancellationToken,
    cuts: watch::Sender<u32>,
}

impl Proxy {
    pub async fn start(shutdown: &Shutdown) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of our own");
        let port = listener.local_addr().expect("bound").port();
        let (cuts, _) = watch::channel(0);
        let (open, hard) = (CancellationToken::new(), shutdown.hard.clone());
        let proxy = Self { port, open: open.clone(), cuts: cuts.clone() };
        let forwarder = shutdown.clone();
        shutdown.spawn(async move {
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = open.cancelled() => return,
                    () = hard.cancelled() => return,
                };
                let (client, _) = accepted.expect("accepted");
                let mut cut = cuts.subscribe();
                let hard = hard.clone();
                forwarder.spawn(async move {
                    tokio::select! {
                        () = forward(client) => (),
                        _ = cut.changed() => (),
                        () = hard.cancelled() => (),
                    }
                });
            }
        });
        proxy
    }

    /// Ends every connection; new ones are welcome.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Ends every connection and takes no more.
    pub fn close(&self) {
        self.open.cancel();
        self.cut();
    }
}

async fn forward(mut client: TcpStream) {
    let url = amqp_url();
    let target = (url.host_str().expect("a host"), url.port().unwrap_or(5672));
    if let Ok(mut broker) = TcpStream::connect(target).await {
        // Either side may end it at any time.
        let _ = copy_bidirectional(&mut client, &mut broker).await;
    }
}
