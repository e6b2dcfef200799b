//! The control of a cluster for other processes: lines over a loopback port.
//!
//! One command a line, words between spaces, keys and values in hex; one answer line, `ok …` or
//! `error …`. Whoever can connect may do anything: the port is for tests of one machine.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use crate::churn::Churn;
use crate::cluster::Cluster;
use crate::faults::{Fault, Target};
use crate::region_errors::region_error;
use crate::writers::{Protocol, Stop, Write};

/// Answers commands for a cluster.
pub struct Console {
    cluster: Arc<Cluster>,
    churn: Mutex<Option<Churn>>,
}

impl Console {
    /// A console of a cluster.
    #[must_use]
    pub fn new(cluster: Arc<Cluster>) -> Arc<Console> {
        Arc::new(Console { cluster, churn: Mutex::new(None) })
    }

    /// Takes connections until the future is dropped.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        let connections = crate::tasks::Tasks::default();
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let console = Arc::clone(&self);
            connections.spawn_stoppable(async move {
                if let Err(error) = console.talk(stream).await {
                    tracing::debug!(%error, "a control connection ended");
                }
            });
        }
    }

    async fn talk(&self, stream: TcpStream) -> std::io::Result<()> {
        let (read, mut write) = stream.into_split();
        let mut lines = BufReader::new(read).lines();
        while let Some(line) = lines.next_line().await? {
            let answer = match self.answer(&line).await {
                Ok(answer) => format!("ok {answer}\n"),
                Err(error) => format!("error {}\n", format!("{error:#}").replace('\n', " ")),
            };
            write.write_all(answer.as_bytes()).await?;
        }
        Ok(())
    }

    /// Does one command.
    ///
    /// # Errors
    /// If it is not known, lacks a word or cannot be done.
    pub async fn answer(&self, line: &str) -> anyhow::Result<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some((command, rest)) = words.split_first() else { bail!("an empty line") };
        let words = Words(rest);
        if let Some(answer) = self.regions(command, &words).await? {
            return Ok(answer);
        }
        if let Some(answer) = self.stores(command, &words).await? {
            return Ok(answer);
        }
        if let Some(answer) = self.pd(command, &words).await? {
            return Ok(answer);
        }
        self.requests(command, &words).await
    }

    async fn regions(&self, command: &str, words: &Words<'_>) -> anyhow::Result<Option<String>> {
        let cluster = &self.cluster;
        match command {
            "regions" => return Ok(Some(self.list().await)),
            "split" => drop(cluster.split_at(&words.bytes(0)?).await?),
            "merge" => drop(cluster.merge(words.number(0)?, words.number(1)?).await?),
            "lead" => cluster.transfer_leader(words.number(0)?, words.number(1)?).await?,
            "depose" => cluster.depose_leader(words.number(0)?).await?,
            "move" => cluster.move_peer(words.number(0)?, words.number(1)?, words.number(2)?).await?,
            "churn" => {
                let pause = Duration::from_millis(words.number(1)?);
                let churn = cluster.churn(words.number(0)?, pause);
                let old = self.churn.lock().await.replace(churn);
                drop(old);
            }
            "calm" => {
                let churn = self.churn.lock().await.take();
                let changes = if let Some(churn) = churn { churn.stop().await } else { 0 };
                return Ok(Some(changes.to_string()));
            }
            _ => return Ok(None),
        }
        Ok(Some(String::new()))
    }

    async fn list(&self) -> String {
        let mut listed = String::new();
        for region in self.cluster.regions().await {
            let (start, end) = (&region.meta.start_key, &region.meta.end_key);
            let leader = region.leader.unwrap_or(0);
            // Writing to a string cannot fail.
            let _ = write!(listed, "{}:{}:{leader}:{start:x}:{end:x} ", region.id(), region.version());
        }
        listed.trim_end().to_owned()
    }

    async fn stores(&self, command: &str, words: &Words<'_>) -> anyhow::Result<Option<String>> {
        let cluster = &self.cluster;
        match command {
            "down" => cluster.store_down(words.number(0)?).await?,
            "up" => cluster.store_up(words.number(0)?),
            "elect" => cluster.elect().await?,
            "reset" => cluster.reset_connections(words.number(0)?).await,
            "interval" => cluster.pace().set_interval(Duration::from_millis(words.number(0)?)),
            "silence" => cluster.pace().silence_store(words.number(0)?, words.switch(1)?),
            "stick" => cluster.pace().stick_region(words.number(0)?, words.switch(1)?),
            "hold-scans" => cluster.pace().hold_scans(words.switch(0)?),
            "scan-pause" => cluster.pace().set_scan_pause(Duration::from_millis(words.number(0)?)),
            "hold-memory" => cluster.hold_in_memory(words.switch(0)?),
            _ => return Ok(None),
        }
        Ok(Some(String::new()))
    }

    async fn pd(&self, command: &str, words: &Words<'_>) -> anyhow::Result<Option<String>> {
        let cluster = &self.cluster;
        match command {
            "timestamp" => return Ok(Some(cluster.timestamp().await?.to_string())),
            "pd-lead" => cluster.pd_lead(words.number(0)?),
            "pd-depose" => cluster.pd_depose(),
            "pd-down" => cluster.pd_member_down(usize::try_from(words.number(0)?)?, true),
            "pd-up" => cluster.pd_member_down(usize::try_from(words.number(0)?)?, false),
            "tso-stall" => cluster.stall_timestamps(words.switch(0)?),
            "tso-back" => cluster.timestamps_fall_back(words.switch(0)?),
            "part" => cluster.part_stores_from_pd(words.switch(0)?),
            "freeze" => cluster.freeze_pd_regions(words.switch(0)?).await,
            "holes" => cluster.set_pd_holes(&words.numbers()?),
            "collect" => return Ok(Some(cluster.collect_garbage(words.number(0)?).await?.to_string())),
            "pass-gc" => cluster.pass_garbage_collection(words.number(0)?).await?,
            "barriers" => return Ok(Some(serde_json::to_string(&cluster.barriers().await?)?)),
            _ => return Ok(None),
        }
        Ok(Some(String::new()))
    }

    async fn requests(&self, command: &str, words: &Words<'_>) -> anyhow::Result<String> {
        let cluster = &self.cluster;
        match command {
            "fault" => {
                let (target, fault, count) = words.fault()?;
                cluster.plan_fault(target, fault, count);
            }
            "clear" => cluster.clear_faults(),
            "left" => return Ok(cluster.faults_left().to_string()),
            "release" => cluster.release_held(),
            "write" => {
                let protocol = words.protocol(0)?;
                return Ok(cluster.write_as(protocol, &words.writes(1)?).await?.to_string());
            }
            "leave" => {
                let (protocol, stop) = (words.protocol(0)?, words.stop(1)?);
                let left = cluster.leave(protocol, stop, words.number(2)?, &words.writes(3)?).await?;
                return Ok(format!("{} {}", left.start_ts, left.commit_ts.unwrap_or(0)));
            }
            "violations" => return Ok(serde_json::to_string(&cluster.violations())?),
            "forgive" => return Ok(serde_json::to_string(&cluster.take_violations())?),
            "counts" => {
                let counts = cluster.counts();
                let counts = counts.iter().map(|(name, count)| format!("{name}={}", count.requests));
                return Ok(counts.collect::<Vec<String>>().join(" "));
            }
            _ => bail!("command {command:?} is not known"),
        }
        Ok(String::new())
    }
}

/// The words after a command.
struct Words<'a>(&'a [&'a str]);

impl Words<'_> {
    fn word(&self, at: usize) -> anyhow::Result<&str> {
        self.0.get(at).copied().with_context(|| format!("word {} is missing", at + 1))
    }

    fn number(&self, at: usize) -> anyhow::Result<u64> {
        let word = self.word(at)?;
        word.parse().with_context(|| format!("{word:?} is no number"))
    }

    fn numbers(&self) -> anyhow::Result<Vec<u64>> {
        (0..self.0.len()).map(|at| self.number(at)).collect()
    }

    fn switch(&self, at: usize) -> anyhow::Result<bool> {
        match self.word(at)? {
            "on" => Ok(true),
            "off" => Ok(false),
            other => bail!("{other:?} is neither on nor off"),
        }
    }

    fn bytes(&self, at: usize) -> anyhow::Result<Vec<u8>> {
        unhex(self.word(at)?)
    }

    fn protocol(&self, at: usize) -> anyhow::Result<Protocol> {
        Ok(match self.word(at)? {
            "2pc" => Protocol::TwoPhase,
            "async" => Protocol::AsyncCommit,
            "1pc" => Protocol::OnePhase,
            other => bail!("protocol {other:?} is not known"),
        })
    }

    fn stop(&self, at: usize) -> anyhow::Result<Stop> {
        Ok(match self.word(at)? {
            "before-primary" => Stop::BeforePrimary,
            "prewritten" => Stop::Prewritten,
            "one-missing" => Stop::OneLockMissing,
            "committed" => Stop::PrimaryCommitted,
            "rolled-back" => Stop::PrimaryRolledBack,
            other => bail!("stop {other:?} is not known"),
        })
    }

    /// Words `key=value`, or `key` to delete.
    fn writes(&self, from: usize) -> anyhow::Result<Vec<Write>> {
        let words = self.0.get(from..).unwrap_or_default();
        let write = |word: &&str| match word.split_once('=') {
            Some((key, value)) => Ok((unhex(key)?, Some(unhex(value)?))),
            None => Ok((unhex(word)?, None)),
        };
        words.iter().map(write).collect()
    }

    /// `call|* store|* region|* count|* kind [milliseconds]`
    fn fault(&self) -> anyhow::Result<(Target, Fault, Option<u64>)> {
        let any = |at: usize| Ok::<_, anyhow::Error>(Some(self.word(at)?).filter(|word| *word != "*"));
        let number = |at: usize| any(at)?.map(|_| self.number(at)).transpose();
        let target = Target { rpc: any(0)?.map(str::to_owned), store_id: number(1)?, region_id: number(2)? };
        let count = number(3)?;
        let fault = match self.word(4)? {
            "drop-request" => Fault::DropRequest,
            "drop-answer" => Fault::DropAnswer,
            "delay-request" => Fault::DelayRequest(Duration::from_millis(self.number(5)?)),
            "delay-answer" => Fault::DelayAnswer(Duration::from_millis(self.number(5)?)),
            "hold-request" => Fault::HoldRequest,
            "hold-answer" => Fault::HoldAnswer,
            name => {
                let error = region_error(name).with_context(|| format!("fault {name:?} is not known"))?;
                Fault::Region(Box::new(error))
            }
        };
        Ok((target, fault, count))
    }
}

fn unhex(text: &str) -> anyhow::Result<Vec<u8>> {
    anyhow::ensure!(text.len().is_multiple_of(2) && text.is_ascii(), "{text:?} is not in hex");
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).context("not in hex");
    (0..text.len()).step_by(2).map(byte).collect()
}
