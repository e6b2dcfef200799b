//! The oracle: timestamps in batches over one stream.
//!
//! A task owns the stream and has one request under way. Callers that come before a request is sent join
//! it; those that come while it is under way wait for the next, because a timestamp must be drawn after its
//! caller asked. Every batch lies above all before it, over reconnects too: an oracle that falls back has
//! lost what all else rests on, and from then on nobody gets a timestamp.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use types::{Error, Result, Timestamp};

use super::members::{Members, describe, says_not_leader};
use crate::backoff::{Backoff, Pause};
use crate::proto::pdpb;
use crate::tasks::Tasks;

/// Timestamps of one request; far below the 18 bits of a millisecond.
const BATCH_MAX: usize = 1 << 12;
/// Callers that wait to be taken into a batch before more have to wait for room.
const QUEUE_MAX: usize = 1 << 12;
/// How long one request may take before the stream is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

type Caller = oneshot::Sender<Result<Timestamp>>;

/// The first timestamp of a batch, from the last, which is what the answer holds.
///
/// # Errors
/// `Corrupt` if the answer is not what was asked for.
fn first_of_batch(answer: &pdpb::TsoResponse, count: u32) -> Result<Timestamp> {
    let bad = |text: &str| Error::corrupt(format!("the oracle's answer {text}: {answer:?}"));
    let Some(last) = &answer.timestamp else { return Err(bad("has no timestamp")) };
    if answer.count != count {
        return Err(bad("is for another number of timestamps"));
    }
    if last.suffix_bits != 0 {
        return Err(bad("is of a local oracle"));
    }
    let physical = u64::try_from(last.physical).map_err(|_| bad("is before 1970"))?;
    let logical = u64::try_from(last.logical).map_err(|_| bad("counts below zero"))?;
    let first = logical.checked_sub(u64::from(count) - 1).ok_or_else(|| bad("counts below zero"))?;
    if logical >= 1 << Timestamp::LOGICAL_BITS || physical >= 1 << (64 - Timestamp::LOGICAL_BITS) {
        return Err(bad("does not fit in 64 bits"));
    }
    Ok(Timestamp::from_parts(physical, first))
}

/// A timestamp that the oracle has passed, or the maximum, which stands for none.
///
/// Stores end themselves when they are asked at a timestamp that the oracle has not given out yet, so what
/// is sent to one is of this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passed(Timestamp);

impl Passed {
    /// The number that is sent.
    pub(crate) fn raw(self) -> u64 {
        self.0.0
    }

    /// The timestamp.
    pub(crate) fn ts(self) -> Timestamp {
        self.0
    }
}

/// What was given out last, and when.
#[derive(Debug)]
struct Newest {
    ts: Timestamp,
    at: Instant,
}

/// The oracle's callers' side.
pub(crate) struct Oracle {
    callers: mpsc::Sender<Caller>,
    newest: Arc<Mutex<Newest>>,
}

impl Oracle {
    /// Starts the task that owns the stream.
    pub(crate) fn start(members: Arc<Members>, budget: Duration, tasks: &Tasks) -> Oracle {
        let (callers, queue) = mpsc::channel(QUEUE_MAX);
        let newest = Arc::new(Mutex::new(Newest { ts: Timestamp::ZERO, at: Instant::now() }));
        let server = Server { members, budget, newest: Arc::clone(&newest), fallen: None, stream: None };
        tasks.spawn("oracle", server.run(queue, tasks.stop_token()));
        Oracle { callers, newest }
    }

    /// A fresh timestamp, drawn after the call began.
    ///
    /// # Errors
    /// `Unavailable` if the placement driver does not answer, `Corrupt` if its oracle fell back, `Closed`
    /// after the end.
    pub(crate) async fn draw(&self) -> Result<Passed> {
        let closed = || Error::closed("the connection to the cluster is closed");
        let (caller, answer) = oneshot::channel();
        self.callers.send(caller).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?.map(Passed)
    }

    /// The newest timestamp that was given out to this process.
    pub(crate) fn newest(&self) -> Timestamp {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).ts
    }

    /// How long ago a timestamp was drawn, about; for times to live, which are durations.
    pub(crate) fn age_ms(&self, ts: Timestamp) -> u64 {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ms = newest.ts.physical_ms() + newest.at.elapsed().as_millis() as u64;
        now_ms.saturating_sub(ts.physical_ms())
    }

    /// A timestamp that may be sent: one that the oracle has passed.
    ///
    /// # Errors
    /// `Invalid` if it lies in the future.
    pub(crate) async fn passed(&self, ts: Timestamp) -> Result<Passed> {
        if ts == Timestamp::MAX || ts <= self.newest() || ts < self.draw().await?.ts() {
            return Ok(Passed(ts));
        }
        Err(Error::invalid(format!("timestamp {ts} is in the future")))
    }
}

/// The stream to the leader.
struct Stream {
    requests: mpsc::Sender<pdpb::TsoRequest>,
    answers: tonic::Streaming<pdpb::TsoResponse>,
}

/// What the task owns.
struct Server {
    members: Arc<Members>,
    budget: Duration,
    newest: Arc<Mutex<Newest>>,
    /// Why there are no timestamps any more.
    fallen: Option<Error>,
    stream: Option<(u64, Stream)>,
}

impl Server {
    async fn run(mut self, mut queue: mpsc::Receiver<Caller>, stop: CancellationToken) {
        let mut waiting: Vec<Caller> = Vec::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // Cancel safe: `recv_many` takes nothing unless it ends.
                n_callers = queue.recv_many(&mut waiting, BATCH_MAX) => if n_callers == 0 { return },
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.serve(&mut waiting, &mut queue) => {}
            }
        }
    }

    /// Serves those who wait, and whoever comes before a request is sent.
    async fn serve(&mut self, waiting: &mut Vec<Caller>, queue: &mut mpsc::Receiver<Caller>) {
        let mut backoff = Backoff::new(self.budget);
        loop {
            while waiting.len() < BATCH_MAX
                && let Ok(caller) = queue.try_recv()
            {
                waiting.push(caller);
            }
            waiting.retain(|caller| !caller.is_closed());
            if waiting.is_empty() {
                return;
            }
            let batch = match self.fallen.clone() {
                Some(error) => Err(error),
                None => self.draw(waiting.len()).await,
            };
            let failure = match batch {
                Ok(first) => return self.give(first, waiting),
                Err(error) => error,
            };
            if failure.kind() == types::ErrorKind::Unavailable {
                tracing::debug!(error = %failure, "no timestamps, asking again");
                if backoff.wait(Pause::Call).await {
                    continue;
                }
            }
            for caller in waiting.drain(..) {
                // Whoever does not wait any more needs no answer.
                let _ = caller.send(Err(failure.clone()));
            }
            return;
        }
    }

    fn give(&self, first: Timestamp, waiting: &mut Vec<Caller>) {
        let last = Timestamp(first.0 + waiting.len() as u64 - 1);
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Newest { ts: last, at: Instant::now() };
        for (offset, caller) in waiting.drain(..).enumerate() {
            // A timestamp that nobody waits for is lost.
            let _ = caller.send(Ok(Timestamp(first.0 + offset as u64)));
        }
    }

    /// Draws a batch and checks it against all before; a failed stream is given up with its leader.
    async fn draw(&mut self, n_callers: usize) -> Result<Timestamp> {
        let count = u32::try_from(n_callers).expect("a batch is bounded");
        let asked = tokio::time::timeout(ANSWER_TIMEOUT, self.ask(count)).await;
        let answer = asked.unwrap_or_else(|_| Err(Error::unavailable("the oracle does not answer")));
        let first = match answer.and_then(|answer| first_of_batch(&answer, count)) {
            Ok(first) => first,
            Err(error) => {
                if let Some((generation, _)) = self.stream.take() {
                    self.members.forget(generation).await;
                }
                return Err(error);
            }
        };
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner).ts;
        if first <= newest {
            let error = Error::corrupt(format!("the oracle fell back from {newest} to {first}"));
            tracing::error!(%error, "no timestamps from here on");
            self.fallen = Some(error.clone());
            self.stream = None;
            return Err(error);
        }
        Ok(first)
    }

    async fn ask(&mut self, count: u32) -> Result<pdpb::TsoResponse> {
        let request = pdpb::TsoRequest { header: Some(self.members.header()), count, ..Default::default() };
        let failed = |status: &tonic::Status| Error::unavailable(format!("oracle: {}", describe(status)));
        let ended = || Error::unavailable("the oracle's stream ended");
        if let Some((_, stream)) = &mut self.stream {
            stream.requests.send(request).await.map_err(|_| ended())?;
        } else {
            let mut leader = self.members.leader().await?;
            let (requests, receiver) = mpsc::channel(1);
            // Before the call: a server may not answer a stream before its first request.
            requests.send(request).await.map_err(|_| ended())?;
            let opened = leader.client.tso(ReceiverStream::new(receiver)).await;
            let answers = match opened {
                Ok(answers) => answers.into_inner(),
                Err(status) => {
                    self.members.forget(leader.generation).await;
                    return Err(failed(&status));
                }
            };
            self.stream = Some((leader.generation, Stream { requests, answers }));
        }
        let (_, stream) = self.stream.as_mut().ok_or_else(ended)?;
        let answer = stream.answers.message().await.map_err(|status| failed(&status))?.ok_or_else(ended)?;
        let error = answer.header.as_ref().and_then(|header| header.error.as_ref());
        match error {
            Some(error) if error.r#type() != pdpb::ErrorType::Ok => {
                let leads = !says_not_leader(&error.message);
                Err(Error::unavailable(format!("oracle (leads: {leads}): {}", error.message)))
            }
            _ => Ok(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(physical: i64, logical: i64, count: u32) -> pdpb::TsoResponse {
        let timestamp = Some(pdpb::Timestamp { physical, logical, suffix_bits: 0 });
        pdpb::TsoResponse { header: None, count, timestamp }
    }

    #[test]
    fn the_answer_holds_the_last_of_the_batch() {
        let first = first_of_batch(&answer(1_000, 41, 10), 10).expect("a good answer");
        assert_eq!(first, Timestamp::from_parts(1_000, 32));
        let only = first_of_batch(&answer(1_000, 0, 1), 1).expect("a good answer");
        assert_eq!(only, Timestamp::from_parts(1_000, 0));
    }

    #[test]
    fn answers_that_were_not_asked_for_are_refused() {
        assert!(first_of_batch(&answer(1_000, 8, 10), 10).is_err(), "it would begin below zero");
        assert!(first_of_batch(&answer(1_000, 41, 9), 10).is_err(), "another count");
        assert!(first_of_batch(&answer(1_000, 1 << 18, 1), 1).is_err(), "more than 18 bits");
        assert!(first_of_batch(&answer(-1, 0, 1), 1).is_err());
        assert!(first_of_batch(&pdpb::TsoResponse { count: 1, ..Default::default() }, 1).is_err());
        let mut local = answer(1_000, 41, 1);
        local.timestamp.as_mut().expect("it has one").suffix_bits = 2;
        assert!(first_of_batch(&local, 1).is_err());
    }
}
