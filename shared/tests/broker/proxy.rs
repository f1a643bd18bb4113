//! A TCP proxy before the broker that can cut its connections, freeze them, and be gone.

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
    frozen: watch::Sender<bool>,
}

impl Proxy {
    pub async fn start(shutdown: &Shutdown) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of our own");
        let port = listener.local_addr().expect("bound").port();
        let (cuts, _) = watch::channel(0);
        let (frozen, _) = watch::channel(false);
        let (open, hard) = (CancellationToken::new(), shutdown.hard.clone());
        let proxy = Self { port, open: open.clone(), cuts: cuts.clone(), frozen: frozen.clone() };
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
                let frozen = frozen.subscribe();
                let hard = hard.clone();
                forwarder.spawn(async move {
                    tokio::select! {
                        () = while_not_frozen(forward(client), frozen) => (),
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

    /// Keeps every connection and carries nothing, until told otherwise.
    pub fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    /// Ends every connection and takes no more.
    pub fn close(&self) {
        self.open.cancel();
        self.cut();
    }
}

async fn while_not_frozen(work: impl Future<Output = ()>, mut frozen: watch::Receiver<bool>) {
    let mut work = std::pin::pin!(work);
    loop {
        // Work that is not polled stands still.
        if frozen.wait_for(|frozen| !frozen).await.is_err() {
            return;
        }
        tokio::select! {
            () = &mut work => return,
            _ = frozen.wait_for(|frozen| *frozen) => {}
        }
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
