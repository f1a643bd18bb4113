//! Faults of the network: the links of a few members, to one service, fail in one of the ways in
//! which cables, switches and firewalls do.

use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use rand::Rng as _;
use rand::seq::IndexedRandom as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::lost_commit::LostCommit;
use super::signs::{self, BITE, RED, Side};
use crate::drill::fault::{Bite, Fault};
use crate::drill::field::{Field, until};
use crate::proxy::{Link, Mode};

/// Members that are hit at once, at most: two of five always stay whole.
const MOST_VICTIMS: usize = 3;
/// How long a link is slow.
const SLOW: Duration = Duration::from_secs(4);
/// Latency and jitter of a slow link.
const LATE: Mode =
    Mode::Delay { base: Duration::from_millis(150), jitter: Duration::from_millis(100) };
/// Three kilobytes a second.
const THIN: Mode = Mode::Trickle { bytes: 64, every: Duration::from_millis(20) };
/// Greetings of which the fastest counts.
const GREETINGS: usize = 5;
/// The shortest frame of AMQP, a heartbeat, has one byte more.
const HALF_A_FRAME: u64 = 7;

/// All of them.
pub(super) fn all() -> Vec<Box<dyn Fault>> {
    let of = |name, summary, side, blow| Box::new(LinkFault { name, summary, side, blow });
    let (amqp, pg) = (Side::RabbitMq, Side::Postgres);
    let mut all: Vec<Box<dyn Fault>> = vec![
        of("amqp.cut", "the connections of some members to RabbitMQ are reset", amqp, Blow::Cut),
        of("amqp.black_hole", "they go silent, both ways, without an end", amqp, Blow::Silence),
        of(
            "amqp.one_way",
            "one direction of them goes silent: confirms are lost, or publishes",
            amqp,
            Blow::OneWay,
        ),
        of("amqp.delay", "each piece is 150 to 250 ms late, both ways", amqp, Blow::Slow(LATE)),
        of("amqp.trickle", "64 bytes pass every 20 ms, both ways", amqp, Blow::Slow(THIN)),
        of("amqp.half_frame", "they are reset in the middle of a frame", amqp, Blow::HalfFrame),
        of("amqp.refused", "they are reset, and new ones refused for a while", amqp, Blow::Refuse),
        of("pg.cut", "the connections of some members to PostgreSQL are reset", pg, Blow::Cut),
        of("pg.black_hole", "they go silent, both ways, without an end", pg, Blow::Silence),
        of(
            "pg.one_way",
            "one direction of them goes silent: answers are lost, or statements",
            pg,
            Blow::OneWay,
        ),
        of("pg.delay", "each piece is 150 to 250 ms late, both ways", pg, Blow::Slow(LATE)),
    ];
    all.push(Box::new(LostCommit));
    all
}

/// One way of failing, of the links to one service.
struct LinkFault {
    name: &'static str,
    summary: &'static str,
    side: Side,
    blow: Blow,
}

#[derive(Clone, Copy)]
enum Blow {
    Cut,
    Silence,
    OneWay,
    Slow(Mode),
    HalfFrame,
    Refuse,
}

#[async_trait(?Send)]
impl Fault for LinkFault {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let chosen = victims(field);
        match self.blow {
            Blow::Cut => self.reset(field, &chosen, None).await,
            Blow::HalfFrame => {
                let half = field.dice.random_range(1..=HALF_A_FRAME);
                self.reset(field, &chosen, Some(half)).await
            }
            Blow::Silence => self.until_red(field, &chosen, Mode::BlackHole).await,
            Blow::OneWay => {
                let down = field.dice.random_bool(0.5);
                let mode = if down { Mode::DropDown } else { Mode::DropUp };
                self.until_red(field, &chosen, mode).await
            }
            Blow::Refuse => self.until_red(field, &chosen, Mode::Refuse).await,
            Blow::Slow(mode) => self.slow(field, &chosen, mode).await,
        }
    }
}

impl LinkFault {
    /// Resets all connections, at once or within the next frame; proof is that each link lost some
    /// and that each member dialled again.
    async fn reset(
        &self,
        field: &Field,
        chosen: &[usize],
        half: Option<u64>,
    ) -> anyhow::Result<Bite> {
        let read = |which| signs::counts(field, chosen, self.side, which);
        let (closed, opened) = (read(|c| c.closed_by_fault), read(|c| c.opened));
        for link in self.links(field, chosen) {
            match half {
                None => link.cut(),
                Some(bytes) => link.cut_after_bytes(bytes),
            };
        }
        let mut since = Instant::now();
        until("the connections are reset and dialled again", BITE, async || {
            let all_closed = signs::each_rose(&closed, &read(|c| c.closed_by_fault));
            if !all_closed {
                since = Instant::now();
            }
            Ok((all_closed && signs::each_rose(&opened, &read(|c| c.opened))).then_some(()))
        })
        .await?;
        let lost = signs::rise(&closed, &read(|c| c.closed_by_fault));
        let how = half.map_or(String::new(), |bytes| format!(" {bytes} bytes into a frame"));
        let names = signs::names(field, chosen);
        Ok(Bite::new(
            since,
            format!("{lost} connections of {names} were reset{how}, and dialled again"),
        ))
    }

    /// Holds a mode until each member says that it is not ready; proof is that, and what the links
    /// swallowed or refused.
    async fn until_red(&self, field: &Field, chosen: &[usize], mode: Mode) -> anyhow::Result<Bite> {
        let read = |which| signs::counts(field, chosen, self.side, which);
        let swallowed = read(|c| c.swallowed_up + c.swallowed_down);
        let refused = read(|c| c.refused);
        for link in self.links(field, chosen) {
            link.set(mode);
            if mode == Mode::Refuse {
                link.cut();
            }
        }
        let struck = Instant::now();
        let bytes = || signs::rise(&swallowed, &read(|c| c.swallowed_up + c.swallowed_down));
        let dials = || signs::rise(&refused, &read(|c| c.refused));
        // First what the link does: a page may have been red for a moment before that.
        until("something is swallowed or refused", BITE, async || {
            Ok((bytes() + dials() > 0).then_some(()))
        })
        .await?;
        signs::all_red(field, chosen).await?;
        let (red, bytes, dials) = (struck.elapsed(), bytes(), dials());
        for link in self.links(field, chosen) {
            link.set(Mode::Pass);
        }
        let since = Instant::now();
        let names = signs::names(field, chosen);
        let what = match mode {
            Mode::Refuse => format!("{dials} dials refused"),
            _ => format!("{bytes} bytes swallowed by {mode:?}"),
        };
        let proof = format!("{what}, {names} not ready after {:.1} s", red.as_secs_f64());
        Ok(Bite::new(since, proof).measured(signs::TURNED_RED, red, RED))
    }

    /// Lets everything pass slowly for a while; proof is how long a greeting takes.
    async fn slow(&self, field: &Field, chosen: &[usize], mode: Mode) -> anyhow::Result<Bite> {
        let read = |which| signs::counts(field, chosen, self.side, which);
        let first = *chosen.first().context("nobody was chosen")?;
        let before = self.greeted(signs::link(field, first, self.side)).await?;
        let passed = read(|c| c.passed_up + c.passed_down);
        for link in self.links(field, chosen) {
            link.set(mode);
        }
        let slow = self.greeted(signs::link(field, first, self.side)).await?;
        sleep(SLOW).await;
        let bytes = signs::rise(&passed, &read(|c| c.passed_up + c.passed_down));
        for link in self.links(field, chosen) {
            link.set(Mode::Pass);
        }
        anyhow::ensure!(slow > before, "a greeting took {slow:?} instead of {before:?}");
        let names = signs::names(field, chosen);
        Ok(Bite::new(
            Instant::now(),
            format!(
                "{bytes} bytes of {names} passed slowly: a greeting took {slow:.0?} instead of {before:.0?}"
            ),
        ))
    }

    /// Greets the service some times; answers how long its fastest answer took: a busy machine makes
    /// any one of them slow.
    async fn greeted(&self, link: &Link) -> anyhow::Result<Duration> {
        let mut fastest = Duration::MAX;
        for _ in 0..GREETINGS {
            fastest = fastest.min(self.greeted_once(link).await?);
        }
        Ok(fastest)
    }

    async fn greeted_once(&self, link: &Link) -> anyhow::Result<Duration> {
        // PostgreSQL answers a wish for TLS with one byte, RabbitMQ a header with what it can do.
        let (greeting, answer): (&[u8], usize) = match self.side {
            Side::Postgres => (&[0, 0, 0, 8, 4, 210, 22, 47], 1),
            Side::RabbitMq => (b"AMQP\x00\x00\x09\x01", 300),
        };
        let began = Instant::now();
        let mut heard = vec![0; answer];
        let greeted = async {
            let mut socket = TcpStream::connect(link.address()).await?;
            socket.write_all(greeting).await?;
            socket.read_exact(&mut heard).await
        };
        timeout(BITE, greeted).await.context("no answer to a greeting")??;
        Ok(began.elapsed())
    }

    fn links<'a>(
        &self,
        field: &'a Field,
        chosen: &'a [usize],
    ) -> impl Iterator<Item = &'a Link> + use<'a> {
        let side = self.side;
        chosen.iter().map(move |&at| signs::link(field, at, side))
    }
}

/// Whom the dice hit.
fn victims(field: &mut Field) -> Vec<usize> {
    let count = field.dice.random_range(1..=MOST_VICTIMS);
    let all = signs::everybody(field);
    let mut chosen: Vec<usize> = all.choose_multiple(&mut field.dice, count).copied().collect();
    chosen.sort_unstable();
    chosen
}
