//! The members of a drill: producers and workers at posts, each with its own links to the services.
//!
//! A post outlives its members: who dies there is replaced there, behind the same links.

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::{Instant, sleep};

use super::log::Log;
use super::services::Services;
use crate::fleet::{Ground, Member, Role};
use crate::proxy::{Link, Mode};

/// Producers of a fleet: one leads, one stands by.
const PRODUCERS: usize = 2;
/// Workers of a fleet.
const WORKERS: usize = 3;
/// Time for a member to be ready, on a loaded machine.
const READY: Duration = Duration::from_secs(60);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// A place for one member, and its links.
#[derive(Debug)]
pub struct Post {
    /// `producer-1`, `worker-3`.
    pub name: String,
    /// Who stands here.
    pub role: Role,
    /// Its way to PostgreSQL.
    pub postgres: Link,
    /// Its way to RabbitMQ.
    pub rabbitmq: Link,
    member: Option<Member>,
}

/// All posts.
#[derive(Debug)]
pub struct Fleet {
    /// Producers first.
    pub posts: Vec<Post>,
    log: Log,
}

impl Fleet {
    /// Starts all members, and waits until they are ready.
    pub async fn start(services: &Services, ground: &Ground, log: &Log) -> anyhow::Result<Self> {
        let mut this = Self { posts: Vec::new(), log: log.clone() };
        for (role, count) in [(Role::Producer, PRODUCERS), (Role::Worker, WORKERS)] {
            for number in 1..=count {
                this.posts.push(Post {
                    name: format!("{}-{number}", role.program()),
                    role,
                    postgres: Link::start(services.postgres()?).await?,
                    rabbitmq: Link::start(services.rabbitmq()?).await?,
                    member: None,
                });
            }
        }
        for at in 0..this.posts.len() {
            this.man(ground, at, &[])?;
        }
        this.ready().await?;
        Ok(this)
    }

    /// The posts of a role.
    pub fn of(&self, role: Role) -> Vec<usize> {
        (0..self.posts.len()).filter(|&at| self.posts[at].role == role).collect()
    }

    /// The post whose member calls itself so: `worker@host#pid`.
    pub fn by_label(&self, label: &str) -> Option<usize> {
        let is_its =
            |post: &Post| post.pid().is_some_and(|pid| label.ends_with(&format!("#{pid}")));
        self.posts.iter().position(is_its)
    }

    /// Starts a member at a post, with more variables. Whoever was there is killed.
    pub fn man(&mut self, ground: &Ground, at: usize, more: &[(&str, &str)]) -> anyhow::Result<()> {
        let post = &mut self.posts[at];
        post.member = None;
        let database = ground.database_url_at(post.postgres.address())?;
        let broker = ground.amqp_url_at(post.rabbitmq.address())?;
        let links = [("DATABASE_URL", database.as_str()), ("AMQP_URL", broker.as_str())];
        let member = Member::start_with(ground, post.role, &[&links, more].concat())?;
        let (pid, log) = (member.pid().unwrap_or_default(), member.log_name());
        self.log.tell(format!("{} is process {pid}, log {log}", post.name));
        post.member = Some(member);
        Ok(())
    }

    /// SIGKILL; answers the process that is gone, and when it was.
    pub async fn kill(&mut self, at: usize) -> anyhow::Result<(u32, Instant)> {
        let member = self.posts[at].member.take().context("nobody stands at the post")?;
        let pid = member.pid().context("the process has ended already")?;
        let blow = Instant::now();
        member.kill().await?;
        self.log.tell(format!("{} (process {pid}) is killed", self.posts[at].name));
        Ok((pid, blow))
    }

    /// Replaces whoever has ended; answers the posts.
    pub fn mend(&mut self, ground: &Ground) -> anyhow::Result<Vec<usize>> {
        let ended: Vec<usize> =
            (0..self.posts.len()).filter(|&at| !self.posts[at].lives()).collect();
        for &at in &ended {
            self.man(ground, at, &[])?;
        }
        Ok(ended)
    }

    /// Waits until all that live are ready.
    ///
    /// # Errors
    /// With the log of the one that was not.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        for post in &mut self.posts {
            let Some(member) = &mut post.member else { continue };
            member.ready(READY).await.with_context(|| post.name.clone())?;
        }
        Ok(())
    }

    /// The first member that is not ready at this moment.
    pub async fn unready(&self) -> Option<&str> {
        for post in &self.posts {
            let ready = match &post.member {
                Some(member) => member.is_ready().await,
                None => false,
            };
            if !ready {
                return Some(&post.name);
            }
        }
        None
    }

    /// Waits until a member has ended by itself; answers how.
    pub async fn ended(&mut self, at: usize, patience: Duration) -> anyhow::Result<String> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(status) = self.posts[at].status() {
                self.posts[at].member = None;
                return Ok(status);
            }
            sleep(LOOK).await;
        }
        anyhow::bail!("{} did not end within {patience:?}", self.posts[at].name)
    }

    /// Every link as a cable again.
    pub fn pass(&self) {
        for link in self.posts.iter().flat_map(|post| [&post.postgres, &post.rabbitmq]) {
            link.keep_answers();
            link.set(Mode::Pass);
        }
    }

    /// SIGTERM to all members of a role, and their ends.
    pub async fn stop(&mut self, role: Role) -> anyhow::Result<()> {
        for post in self.posts.iter_mut().filter(|post| post.role == role) {
            if let Some(member) = post.member.take() {
                let status = member.stop(READY).await.with_context(|| post.name.clone())?;
                anyhow::ensure!(status.success(), "{} ended with {status}", post.name);
            }
        }
        Ok(())
    }
}

impl Post {
    /// Who stands here.
    pub fn pid(&self) -> Option<u32> {
        self.member.as_ref().and_then(Member::pid)
    }

    /// The member, while there is one.
    pub fn member(&self) -> anyhow::Result<&Member> {
        self.member.as_ref().with_context(|| format!("nobody stands at {}", self.name))
    }

    fn lives(&mut self) -> bool {
        self.member.is_some() && self.status().is_none()
    }

    fn status(&mut self) -> Option<String> {
        self.member.as_mut()?.status().map(|status| status.to_string())
    }
}
