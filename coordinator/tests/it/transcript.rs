//! Reads a transcript: what happens to a machine, and exactly what it must then want done.
//!
//! Lines that begin with `->` are commands, in order and complete; others are events; `#` tells the story.
//! Calls are named by worker and verb (`w0.open`), and so are their replies. `store: ...` answers the work
//! that is outstanding, `stale: ...` the work before it.

use std::collections::BTreeMap;

use coordinator::machine::{Answer, Call, Command, Event, Fate, Machine, Reply, Work, WorkId};
use coordinator::{
    CommitTimestamps, Decision, Fault, MachineOptions, OpenRequest, Prepared, SealedRequest, TakeOverRequest,
    VoteRequest,
};
use types::records::EpochRecord;
use types::{Epoch, Error, Generation, JobId, TableId, Timestamp};

const JOB: JobId = JobId(1);

struct Script {
    machine: Machine,
    generation: Generation,
    tickets: BTreeMap<u64, String>,
    next_ticket: u64,
    works: Vec<WorkId>,
}

/// Plays a transcript against a machine that lets the store draw commit timestamps.
pub fn check(text: &str) {
    play(text, CommitTimestamps::Store);
}

/// Plays a transcript against a machine that draws commit timestamps from the oracle.
pub fn check_with_oracle(text: &str) {
    play(text, CommitTimestamps::Oracle);
}

fn play(text: &str, commit_timestamps: CommitTimestamps) {
    let options = MachineOptions { commit_timestamps, refusals_max: 8, ttl_ms: 100 };
    let mut script = Script {
        machine: Machine::new(JOB, options),
        generation: Generation(0),
        tickets: BTreeMap::new(),
        next_ticket: 0,
        works: Vec::new(),
    };
    let lines: Vec<(usize, &str)> = (1..)
        .zip(text.lines().map(str::trim))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .collect();
    assert!(lines.iter().any(|(_, line)| line.starts_with("->")), "a transcript that expects nothing");
    let mut rest = lines.as_slice();
    while let Some(((number, line), after)) = rest.split_first() {
        let wanted = after.iter().take_while(|(_, line)| line.starts_with("->")).count();
        let expected: Vec<String> =
            after[..wanted].iter().map(|(_, line)| line[2..].trim().to_owned()).collect();
        rest = &after[wanted..];
        let commands = script.event(line);
        let happened: Vec<String> = commands.into_iter().map(|command| script.render(command)).collect();
        assert_eq!(
            happened,
            expected,
            "line {number}: {line}\n  the machine wants:\n    -> {}\n  the transcript says:\n    -> {}\n",
            happened.join("\n    -> "),
            expected.join("\n    -> "),
        );
    }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("not a number: {word}"))
}

fn ts(word: &str) -> Timestamp {
    Timestamp(number(word))
}

impl Script {
    fn event(&mut self, line: &str) -> Vec<Command> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["store:", answer @ ..] => {
                let id = self.machine.outstanding().expect("nothing is outstanding");
                self.machine.handle(Event::Done { id, answer: parse_answer(answer) })
            }
            ["stale:", answer @ ..] => {
                let id = self.works[self.works.len() - 2];
                self.machine.handle(Event::Done { id, answer: parse_answer(answer) })
            }
            ["nothing-outstanding"] => {
                assert_eq!(self.machine.outstanding(), None);
                Vec::new()
            }
            ["waits-for:", text @ ..] => {
                assert_eq!(self.machine.waiting_for(), text.join(" "));
                Vec::new()
            }
            ["heartbeat:", "gone", start] => {
                self.machine.handle(Event::HeartbeatLost { start_ts: ts(start), known: true })
            }
            ["heartbeat:", "silence", start] => {
                self.machine.handle(Event::HeartbeatLost { start_ts: ts(start), known: false })
            }
            [worker, verb, rest @ ..] => {
                let (worker, generation) = match worker.split_once("/g") {
                    // An older or newer run's worker names its generation.
                    Some((worker, generation)) => (worker, Generation(number(generation))),
                    None => (*worker, self.generation),
                };
                let index = u32::try_from(number(worker.trim_start_matches('w'))).unwrap();
                let call = parse_call(generation, index, verb, rest);
                self.next_ticket += 1;
                self.tickets.insert(self.next_ticket, format!("{}.{verb}", words[0]));
                self.machine.handle(Event::Call { ticket: self.next_ticket, call })
            }
            _ => panic!("cannot read {line}"),
        }
    }

    fn render(&mut self, command: Command) -> String {
        match command {
            Command::Work { id, work } => {
                self.works.push(id);
                render_work(&work)
            }
            Command::StartHeartbeat { start_ts } => format!("heartbeat {start_ts}"),
            Command::StopHeartbeat => "stop heartbeat".to_owned(),
            Command::Hold { cut } => format!("hold {cut}"),
            Command::Reply { ticket, reply } => {
                let name = self.tickets.remove(&ticket).expect("a reply to a call that waits");
                let text = match reply {
                    Ok(reply) => self.render_reply(reply),
                    Err(error) => format!("{:?}", error.kind()),
                };
                format!("{name}: {text}")
            }
        }
    }

    fn render_reply(&mut self, reply: Reply) -> String {
        match reply {
            Reply::TakenOver(taken) => {
                self.generation = taken.generation;
                format!(
                    "generation {} after epoch {} cut {} at {}",
                    taken.generation, taken.frontier.epoch, taken.frontier.cut, taken.commit_ts
                )
            }
            Reply::Opened(opened) => format!("epoch {} cut {}", opened.epoch, opened.cut),
            Reply::Prepared(Prepared::Prewrite { start_ts, min_commit_ts, faults, ttl_ms, primary }) => {
                assert_eq!(ttl_ms, 100);
                assert_eq!(primary.as_ref(), types::records::epoch_record_key(JOB));
                let faults: Vec<String> =
                    faults.iter().map(|fault| format!(" fault {} {}", fault.view, fault.reason)).collect();
                format!("go under {start_ts} min {min_commit_ts}{}", faults.concat())
            }
            Reply::Prepared(Prepared::DefinitionsChanged { definitions, at }) => {
                format!("definitions {definitions} at {at}")
            }
            Reply::Voted => "ok".to_owned(),
            Reply::Decision(Decision::Committed { commit_ts }) => format!("decided at {commit_ts}"),
            Reply::Decision(Decision::Retry) => "retry".to_owned(),
            Reply::Aborted => "aborted".to_owned(),
            Reply::GivenUp => "given up".to_owned(),
        }
    }
}

fn parse_call(generation: Generation, worker: u32, verb: &str, words: &[&str]) -> Call {
    let job = JOB;
    match (verb, words) {
        ("takes-over", ["workers", n_workers]) => {
            Call::TakeOver(TakeOverRequest { job, n_workers: u32::try_from(number(n_workers)).unwrap() })
        }
        ("opens", []) => Call::Open(OpenRequest { job, generation, cut: None }),
        ("opens", ["at", cut]) => Call::Open(OpenRequest { job, generation, cut: Some(ts(cut)) }),
        ("seals", [epoch, rest @ ..]) => {
            let epoch = Epoch(number(epoch));
            let mut request = SealedRequest {
                job,
                generation,
                epoch,
                worker,
                definitions: 0,
                retry_of: None,
                faults: Vec::new(),
            };
            for pair in rest.chunks(2) {
                match pair {
                    ["with", definitions] => request.definitions = number(definitions),
                    ["after", start] => request.retry_of = Some(ts(start)),
                    ["faulting", view] => request.faults.push(Fault {
                        view: TableId(number(view)),
                        reason: format!("by-{worker}"),
                        key: None,
                        changed_since: None,
                    }),
                    other => panic!("cannot read {other:?}"),
                }
            }
            Call::Sealed(request)
        }
        ("votes", [done @ ("done" | "no"), "for", epoch, "under", start]) => Call::Vote(VoteRequest {
            job,
            generation,
            epoch: Epoch(number(epoch)),
            worker,
            start_ts: ts(start),
            done: *done == "done",
        }),
        ("awaits", [epoch, "under", start]) => {
            Call::Decision { generation, epoch: Epoch(number(epoch)), start_ts: ts(start) }
        }
        ("looks-for", [epoch]) => Call::Await { generation, epoch: Epoch(number(epoch)) },
        ("gives-up", [reason]) => Call::GiveUp { generation, reason: (*reason).to_owned() },
        ("aborts", [epoch]) => Call::Abort { generation, epoch: Epoch(number(epoch)) },
        other => panic!("cannot read {other:?}"),
    }
}

fn parse_answer(words: &[&str]) -> Answer {
    match words {
        ["timestamp", at] => Answer::Timestamp(ts(at)),
        ["no", "record"] => Answer::Record(None),
        ["record", epoch, "cut", cut, "generation", generation, "definitions", definitions] => {
            Answer::Record(Some(EpochRecord {
                epoch: Epoch(number(epoch)),
                cut: ts(cut),
                generation: Generation(number(generation)),
                definitions: number(definitions),
            }))
        }
        ["prewritten"] => Answer::Prewritten,
        ["conflict"] => Answer::Conflict,
        ["committed", at] => Answer::Committed(ts(at)),
        ["expired"] => Answer::Expired,
        ["lock", "gone"] => Answer::LockGone,
        ["it", "committed", "at", at] => Answer::Fate(Fate::Committed(ts(at))),
        ["it", "is", "rolled", "back"] => Answer::Fate(Fate::RolledBack),
        ["it", "lives"] => Answer::Fate(Fate::Alive),
        ["it", "left", "no", "trace"] => Answer::Fate(Fate::NoTrace),
        ["silence"] => Answer::Unknown(Error::unavailable("silence")),
        ["breaks"] => Answer::Failed(Error::corrupt("broken")),
        ["closes"] => Answer::Failed(Error::closed("poisoned")),
        other => panic!("cannot read {other:?}"),
    }
}

fn render_work(work: &Work) -> String {
    let record = |record: &EpochRecord| {
        format!(
            "epoch {} cut {} generation {} definitions {}",
            record.epoch, record.cut, record.generation, record.definitions
        )
    };
    match work {
        Work::ReadTimestamp => "take the read timestamp".to_owned(),
        Work::Start { attempt: 0 } => "draw a start".to_owned(),
        Work::Start { attempt } => format!("draw a start, again {attempt}"),
        Work::ReadRecord { at, end_locks: false } => format!("read the record at {at}"),
        Work::ReadRecord { at, end_locks: true } => format!("read the record at {at}, ending locks"),
        Work::Prewrite { start_ts, record: written, min_commit_ts, ttl_ms } => {
            assert_eq!(*ttl_ms, 100);
            format!("prewrite under {start_ts} min {min_commit_ts}: {}", record(written))
        }
        Work::DrawCommit => "draw a commit timestamp".to_owned(),
        Work::Commit { start_ts, commit_ts: None } => format!("commit {start_ts}"),
        Work::Commit { start_ts, commit_ts: Some(commit_ts) } => format!("commit {start_ts} at {commit_ts}"),
        Work::Ask { start_ts, end: false } => format!("ask after {start_ts}"),
        Work::Ask { start_ts, end: true } => format!("end {start_ts}"),
    }
}
