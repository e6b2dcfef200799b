//! One job's task: feeds the machine, carries its commands out, keeps the primary alive.
//!
//! The task owns the machine; calls reach it through a bounded channel and are answered through oneshots,
//! so a caller that goes away disturbs nothing. Work on the store runs beside it: an abort or a take-over
//! is heard while a commit is under way.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use types::{Error, Result, Timestamp};

use crate::effects::{Beat, Effects};
use crate::failpoints::lost;
use crate::machine::{Answer, Call, Command, Event, Machine, Reply, Ticket, WorkId};
use crate::protocol::{Decision, Opened, Prepared};

/// A message to a job's task.
pub(crate) enum Message {
    Call {
        call: Call,
        reply: oneshot::Sender<Result<Reply>>,
    },
    Status {
        reply: oneshot::Sender<(Option<Opened>, String)>,
    },
    /// Ends the task; everybody who waits gets the error.
    Stop {
        error: Error,
        reply: oneshot::Sender<()>,
    },
}

/// What happened on the store's side.
enum Happening {
    Done { id: WorkId, answer: Answer },
    BeatDue { start_ts: Timestamp },
    Beat { start_ts: Timestamp, beat: Beat },
    Held { cut: Timestamp, held: bool },
}

pub(crate) struct Driver {
    machine: Machine,
    effects: Effects,
    ttl_ms: u64,
    hold_interval_ms: u64,
    tickets: BTreeMap<Ticket, oneshot::Sender<Result<Reply>>>,
    next_ticket: Ticket,
    under_way: FuturesUnordered<BoxFuture<'static, Happening>>,
    beating: Option<Timestamp>,
    /// Where history is held, or is about to be.
    held: Option<Timestamp>,
}

impl Driver {
    pub(crate) fn new(machine: Machine, effects: Effects, ttl_ms: u64, hold_interval_ms: u64) -> Driver {
        Driver {
            machine,
            effects,
            ttl_ms,
            hold_interval_ms,
            tickets: BTreeMap::new(),
            next_ticket: 0,
            under_way: FuturesUnordered::new(),
            beating: None,
            held: None,
        }
    }

    /// Runs until it is told to stop or nobody can call any more.
    pub(crate) async fn run(mut self, mut inbox: mpsc::Receiver<Message>, stop: CancellationToken) {
        loop {
            // All three are cancel safe: a token, a channel, a stream that keeps its futures. In this order,
            // so that a simulation repeats.
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    let commands = self.machine.stop(Error::closed("the coordinator stops"));
                    self.follow(commands);
                    return;
                }
                message = inbox.recv() => match message {
                    None => return,
                    Some(Message::Stop { error, reply }) => {
                        let commands = self.machine.stop(error);
                        self.follow(commands);
                        // Whoever asked may have gone away.
                        let _ = reply.send(());
                        return;
                    }
                    Some(message) => self.receive(message),
                },
                Some(happening) = self.under_way.next() => self.happened(happening),
            }
        }
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Call { call, reply } => {
                // Callers that went away leave tickets that nobody waits for.
                self.tickets.retain(|_, reply| !reply.is_closed());
                self.next_ticket += 1;
                let ticket = self.next_ticket;
                self.tickets.insert(ticket, reply);
                self.feed(Event::Call { ticket, call });
            }
            Message::Status { reply } => {
                let _ = reply.send((self.machine.open_epoch(), self.machine.waiting_for()));
            }
            Message::Stop { .. } => unreachable!("handled by the loop"),
        }
    }

    fn happened(&mut self, happening: Happening) {
        match happening {
            Happening::Done { id, answer } => self.feed(Event::Done { id, answer }),
            Happening::BeatDue { start_ts } => {
                // An epoch is mostly over by then, and its lock not worth a question.
                if self.beating == Some(start_ts) {
                    let (effects, ttl_ms) = (self.effects.clone(), self.ttl_ms);
                    self.under_way.push(Box::pin(async move {
                        Happening::Beat { start_ts, beat: effects.heartbeat(start_ts, ttl_ms).await }
                    }));
                }
            }
            Happening::Beat { start_ts, beat } => {
                if self.beating != Some(start_ts) {
                    return;
                }
                if beat != Beat::Alive {
                    self.feed(Event::HeartbeatLost { start_ts, known: beat == Beat::Gone });
                }
                if beat == Beat::Gone {
                    self.beating = None;
                } else {
                    self.beat(start_ts);
                }
            }
            Happening::Held { cut, held } => {
                if !held && self.held == Some(cut) {
                    self.held = None;
                }
            }
        }
    }

    fn feed(&mut self, event: Event) {
        let was_over = self.machine.over().is_some();
        let commands = self.machine.handle(event);
        if let Some(error) = self.machine.over().filter(|_| !was_over) {
            tracing::info!(job = self.machine.job().0, %error, "the run is over");
        }
        self.follow(commands);
    }

    fn follow(&mut self, commands: Vec<Command>) {
        self.effects.set_newest(self.machine.outstanding());
        for command in commands {
            match command {
                Command::Work { id, work } => {
                    let effects = self.effects.clone();
                    self.under_way.push(Box::pin(async move {
                        Happening::Done { id, answer: effects.carry_out(id, work).await }
                    }));
                }
                Command::StartHeartbeat { start_ts } => {
                    self.beating = Some(start_ts);
                    self.beat(start_ts);
                }
                Command::StopHeartbeat => self.beating = None,
                Command::Hold { cut } => self.hold(cut),
                Command::Reply { ticket, reply } => self.reply(ticket, reply),
            }
        }
    }

    fn beat(&mut self, start_ts: Timestamp) {
        // Two beats may be lost before the lock's time is over.
        let pause = Duration::from_millis(self.ttl_ms / 3);
        self.under_way.push(Box::pin(async move {
            tokio::time::sleep(pause).await;
            Happening::BeatDue { start_ts }
        }));
    }

    /// Holds history at the frontier; a hold is durable, so it moves now and then, not at each epoch.
    fn hold(&mut self, cut: Timestamp) {
        let due = self
            .held
            .is_none_or(|held| cut.physical_ms().saturating_sub(held.physical_ms()) >= self.hold_interval_ms);
        if due {
            self.held = Some(cut);
            let effects = self.effects.clone();
            self.under_way
                .push(Box::pin(async move { Happening::Held { cut, held: effects.hold(cut).await } }));
        }
    }

    fn reply(&mut self, ticket: Ticket, reply: Result<Reply>) {
        let point = match &reply {
            Ok(Reply::Prepared(Prepared::Prewrite { .. })) => "coordinator::before_reply_prewrite",
            Ok(Reply::Voted) => "coordinator::before_reply_vote",
            Ok(Reply::Decision(Decision::Committed { .. })) => "coordinator::before_reply_decision",
            Ok(Reply::TakenOver(_)) => "coordinator::before_reply_take_over",
            _ => "coordinator::before_reply_other",
        };
        let reply = if lost(point) { Err(Error::unavailable("lost at a fail point")) } else { reply };
        if let Some(sender) = self.tickets.remove(&ticket) {
            // A caller that went away repeats the call.
            let _ = sender.send(reply);
        }
    }
}
