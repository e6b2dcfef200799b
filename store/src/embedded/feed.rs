//! The change feed: bounded pages from the index by commit timestamp, and the live feed over them.
//!
//! A page costs what changed in its span, whatever exists. Pieces of a commit that lie outside the asked
//! ranges are skipped by their keys.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use types::{Error, Result, Timestamp};

use super::Inner;
use super::core::Core;
use super::format::{IndexEntry, IndexPiece, PieceKind, index_key, split_index_key};
use super::spans::meets;
use crate::engine::{Engine, Space};
use crate::resolve::{Backoff, settle_below};
use crate::traits::{
    COUNTED_PAGE, Change, ChangePage, FeedEvent, FeedStream, Key, KeyRange, LockInfo, LockKind, Value,
};

/// How many changes the live feed takes at a time.
const FEED_PAGE: usize = 1024;
/// How often the live feed looks at an idle store, in milliseconds.
const IDLE_MS: u64 = 50;
/// After how many idle looks without progress the live feed asks after the locks that hold it back.
const STUCK_LOOKS: u32 = 20;

/// A changed key, before its values are looked up.
struct Found {
    start_ts: Timestamp,
    commit_ts: Timestamp,
    entry: IndexEntry,
}

/// A page ends after a look at so many pieces of the index, however few of their keys were asked for.
const LOOKED_MAX: usize = 65_536;

impl Inner {
    pub(crate) async fn changes(
        self: &Arc<Self>,
        ranges: &[KeyRange],
        from: Timestamp,
        to: Timestamp,
        next: Option<(Timestamp, Key)>,
        limit: usize,
    ) -> Result<ChangePage> {
        self.core.check_history(from)?;
        let ranges = merged(ranges);
        if next.is_none() {
            self.settle(&ranges, to).await?;
        }
        let engine = self.core.engine()?;
        let page = page(&self.core, engine.as_ref(), &ranges, from, to, next, limit)?;
        self.core.check_history(from)?;
        Ok(page)
    }

    /// Counts changes by the index alone: no value is looked up.
    pub(crate) async fn count_changes(
        self: &Arc<Self>,
        ranges: &[KeyRange],
        from: Timestamp,
        to: Timestamp,
        most: u64,
    ) -> Result<u64> {
        self.core.check_history(from)?;
        let ranges = merged(ranges);
        self.settle(&ranges, to).await?;
        let engine = self.core.engine()?;
        let limit = usize::try_from(most.saturating_add(1)).unwrap_or(usize::MAX).min(COUNTED_PAGE);
        let mut n_changes = 0;
        let mut next = None;
        loop {
            let page = found_page(&self.core, engine.as_ref(), &ranges, from, to, next, limit)?;
            n_changes += page.found.len() as u64;
            next = page.next;
            if next.is_none() || n_changes > most {
                break;
            }
            // Millions of changes are counted beside other work.
            tokio::task::yield_now().await;
        }
        self.core.check_history(from)?;
        Ok(n_changes)
    }

    /// Waits until what commits at or below a timestamp in some ranges is there.
    async fn settle(self: &Arc<Self>, ranges: &[KeyRange], to: Timestamp) -> Result<()> {
        self.wait_visible(to).await?;
        let store = super::EmbeddedStore { inner: Arc::clone(self) };
        let mut backoff = Backoff::new(self.core.options.lock_wait_ms_max);
        settle_below(&store, self.changing_locks(ranges, to), to, &mut backoff).await
    }

    /// The locks in ranges that may still change something at or below a timestamp.
    fn changing_locks(&self, ranges: &[KeyRange], to: Timestamp) -> Vec<LockInfo> {
        let table = self.core.locks();
        let locks = ranges.iter().flat_map(|range| table.in_range(range));
        let changing = |info: &&LockInfo| info.kind != LockKind::Lock && info.start_ts <= to;
        locks.map(|lock| &lock.info).filter(changing).cloned().collect()
    }

    pub(crate) async fn resolved(&self, ranges: &[KeyRange]) -> Result<Timestamp> {
        // Visible first: what commits at or below it is applied or holds a lock by now.
        let visible = self.read_timestamp().await?;
        let oldest = self.core.locks().oldest_start(ranges);
        Ok(oldest.map_or(visible, |oldest| visible.min(oldest.prev())))
    }

    pub(crate) async fn wait_change(&self, ts: Timestamp, timeout_ms: u64) -> Result<Timestamp> {
        let wait = async {
            loop {
                let mut progress = self.core.watch();
                self.core.check_open()?;
                if self.core.newest_commit() > ts {
                    return Ok::<(), Error>(());
                }
                progress.changed().await.map_err(|_| Error::closed("the store is closed"))?;
            }
        };
        match tokio::time::timeout(Duration::from_millis(timeout_ms), wait).await {
            Ok(done) => done?,
            Err(_) => self.core.check_open()?,
        }
        self.read_timestamp().await
    }

    pub(crate) fn subscribe(self: &Arc<Self>, ranges: &[KeyRange], from: Timestamp) -> Result<FeedStream> {
        self.core.check_open()?;
        self.core.check_history(from)?;
        let feed = Feed {
            inner: Arc::downgrade(self),
            ranges: merged(ranges),
            sent: from,
            span: None,
            ready: VecDeque::new(),
            idle_looks: 0,
        };
        let stream = futures::stream::unfold(Some(feed), |feed| async move {
            let mut feed = feed?;
            match feed.next().await {
                Ok(event) => Some((Ok(event), Some(feed))),
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(stream.boxed())
    }
}

/// A live feed: pages up to what is resolved, then the resolved timestamp, and again.
struct Feed {
    inner: Weak<Inner>,
    ranges: Vec<KeyRange>,
    /// The resolved timestamp sent last.
    sent: Timestamp,
    /// The span being sent, and where its next page begins.
    span: Option<(Timestamp, Option<(Timestamp, Key)>)>,
    ready: VecDeque<FeedEvent>,
    idle_looks: u32,
}

impl Feed {
    async fn next(&mut self) -> Result<FeedEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            let inner = self.inner.upgrade().ok_or_else(|| Error::closed("the store is closed"))?;
            inner.core.check_open()?;
            match self.span.take() {
                Some((to, next)) => self.fill(&inner, to, next)?,
                None => self.look(inner).await?,
            }
        }
    }

    /// Begins the next span, or waits.
    async fn look(&mut self, inner: Arc<Inner>) -> Result<()> {
        let mut progress = inner.core.watch();
        let resolved = inner.resolved(&self.ranges).await?;
        if resolved > self.sent {
            self.idle_looks = 0;
            self.span = Some((resolved, None));
            // An idle store moves with the clock; do not chase it.
            if inner.core.newest_commit() > self.sent {
                return Ok(());
            }
        } else {
            self.idle_looks += 1;
            if self.idle_looks.is_multiple_of(STUCK_LOOKS) {
                inner.finish_decided(&self.ranges).await?;
            }
        }
        // The store may close while nobody but the feed waits.
        drop(inner);
        let _ = tokio::time::timeout(Duration::from_millis(IDLE_MS), progress.changed()).await;
        Ok(())
    }

    fn fill(&mut self, inner: &Inner, to: Timestamp, next: Option<(Timestamp, Key)>) -> Result<()> {
        let engine = inner.core.engine()?;
        let page = page(&inner.core, engine.as_ref(), &self.ranges, self.sent, to, next, FEED_PAGE)?;
        inner.core.check_history(self.sent)?;
        self.ready.extend(page.changes.into_iter().map(FeedEvent::Change));
        if page.next.is_some() {
            self.span = Some((to, page.next));
        } else {
            self.sent = to;
            self.ready.push_back(FeedEvent::Resolved(to));
        }
        Ok(())
    }
}

impl Inner {
    /// Finishes locks whose transactions are decided or expired, so that nobody's death stops a feed.
    async fn finish_decided(self: &Arc<Self>, ranges: &[KeyRange]) -> Result<()> {
        use crate::resolve::{Fate, ask, finish};
        let store = super::EmbeddedStore { inner: Arc::clone(self) };
        for lock in self.changing_locks(ranges, Timestamp::MAX) {
            match ask(&store, &lock, Timestamp::ZERO).await? {
                Fate::Committed(commit_ts) => finish(&store, &[&lock], Some(commit_ts)).await?,
                Fate::RolledBack => finish(&store, &[&lock], None).await?,
                Fate::Pushed | Fate::Alive => {}
            }
        }
        Ok(())
    }
}

/// The ranges in order, without overlaps.
fn merged(ranges: &[KeyRange]) -> Vec<KeyRange> {
    let nonempty = |range: &&KeyRange| range.end.is_empty() || range.start < range.end;
    let mut sorted: Vec<KeyRange> = ranges.iter().filter(nonempty).cloned().collect();
    sorted.sort_by(|left, right| left.start.cmp(&right.start));
    let mut merged: Vec<KeyRange> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match merged.last_mut() {
            Some(last) if last.end.is_empty() => {}
            Some(last) if range.start <= last.end => {
                if range.end.is_empty() || range.end > last.end {
                    last.end = range.end;
                }
            }
            _ => merged.push(range),
        }
    }
    merged
}

fn page(
    core: &Core,
    engine: &dyn Engine,
    ranges: &[KeyRange],
    from: Timestamp,
    to: Timestamp,
    next: Option<(Timestamp, Key)>,
    limit: usize,
) -> Result<ChangePage> {
    let FoundPage { found, next } = found_page(core, engine, ranges, from, to, next, limit)?;
    let mut changes = Vec::with_capacity(found.len());
    for of_commit in found.chunk_by(|left, right| left.commit_ts == right.commit_ts) {
        let recent = core.recent.commit(of_commit[0].commit_ts);
        for found in of_commit {
            let known = recent.as_ref().map(|commit| commit.values(&found.entry.key)).transpose()?.flatten();
            let (value, old_value) = match known {
                Some(known) => known,
                None => look_up(core, engine, found, from)?,
            };
            let Found { start_ts, commit_ts, entry } = found;
            let (key, start_ts, commit_ts) = (entry.key.clone(), *start_ts, *commit_ts);
            changes.push(Change { key, start_ts, commit_ts, value, old_value });
        }
    }
    Ok(ChangePage { changes, next })
}

/// A page of changed keys.
struct FoundPage {
    found: Vec<Found>,
    /// Where the next page begins.
    next: Option<(Timestamp, Key)>,
}

fn found_page(
    core: &Core,
    engine: &dyn Engine,
    ranges: &[KeyRange],
    from: Timestamp,
    to: Timestamp,
    next: Option<(Timestamp, Key)>,
    limit: usize,
) -> Result<FoundPage> {
    // One more than asked tells where the next page begins.
    let wanted = limit.max(1).saturating_add(1);
    let mut found = Vec::new();
    let mut after = from;
    if let Some((commit_ts, key)) = next {
        commit_changes(engine, ranges, commit_ts, &key, &Drawn::Any, wanted, &mut found)?;
        after = commit_ts;
    }
    let stopped = find(core, engine, ranges, after, to, wanted, &mut found)?;
    let next = if found.len() < wanted {
        stopped.map(|commit_ts| (commit_ts, Key::new()))
    } else {
        let last = found.pop().expect("at least one more than asked was found");
        Some((last.commit_ts, last.entry.key))
    };
    Ok(FoundPage { found, next })
}

/// Finds what commits above `after` and up to `to` changed, until enough is found or enough was looked at:
/// then it answers the commit to go on with.
fn find(
    core: &Core,
    engine: &dyn Engine,
    ranges: &[KeyRange],
    after: Timestamp,
    to: Timestamp,
    wanted: usize,
    found: &mut Vec<Found>,
) -> Result<Option<Timestamp>> {
    let mut n_looked = 0;
    if ranges.is_empty() {
        return Ok(None);
    }
    for (after, to) in core.stretches.worth_a_look(ranges, after, to) {
        let stopped = find_between(core, engine, ranges, (after, to), wanted, &mut n_looked, found)?;
        if stopped.is_some() || found.len() >= wanted {
            return Ok(stopped);
        }
    }
    Ok(None)
}

/// The same by the index.
fn find_between(
    core: &Core,
    engine: &dyn Engine,
    ranges: &[KeyRange],
    (after, to): (Timestamp, Timestamp),
    wanted: usize,
    n_looked: &mut usize,
    found: &mut Vec<Found>,
) -> Result<Option<Timestamp>> {
    let mut after = after;
    while found.len() < wanted && after < to {
        let start = Bound::Included(first_of(after.0.saturating_add(1)));
        let end = if to == Timestamp::MAX { Bound::Unbounded } else { Bound::Excluded(first_of(to.0 + 1)) };
        let mut entries = engine.range(Space::Index, (start, end), false).peekable();
        loop {
            let Some(entry) = entries.next().transpose()? else { return Ok(None) };
            if found.len() >= wanted {
                return Ok(None);
            }
            let (commit_ts, _) = split_index_key(&entry.0)?;
            if *n_looked >= LOOKED_MAX {
                return Ok(Some(commit_ts));
            }
            *n_looked += 1;
            if let Some(next_kind) = continues(&mut entries, commit_ts)? {
                // A commit of several pieces: go to those of the ranges, then on behind it.
                let drawn = match (split_index_key(&entry.0)?.1, next_kind) {
                    (PieceKind::Named, _) => Drawn::None,
                    // As an epoch: its record is decided first, by itself.
                    (PieceKind::Drawn, PieceKind::Named) => {
                        Drawn::One(IndexPiece::decode(&entry.0, &entry.1)?)
                    }
                    (PieceKind::Drawn, PieceKind::Drawn) => {
                        let span = span(core, engine, commit_ts, &entry)?;
                        if meets(ranges, &span) { Drawn::Any } else { Drawn::None }
                    }
                };
                commit_changes(engine, ranges, commit_ts, &Key::new(), &drawn, wanted, found)?;
                after = commit_ts;
                break;
            }
            let piece = IndexPiece::decode(&entry.0, &entry.1)?;
            let inside = |entry: &IndexEntry| is_inside(ranges, &entry.key);
            let start_ts = piece.start_ts;
            let entries = piece.entries.into_iter().filter(inside);
            let room = wanted - found.len();
            found.extend(entries.map(|entry| Found { start_ts, commit_ts, entry }).take(room));
        }
    }
    Ok(None)
}

/// Whether one of some ranges, in order and apart, has a key.
fn is_inside(ranges: &[KeyRange], key: &[u8]) -> bool {
    let after = ranges.partition_point(|range| range.start.as_ref() <= key);
    after.checked_sub(1).is_some_and(|at| ranges[at].contains(key))
}

type Pieces<'a> = Peekable<crate::engine::Entries<'a>>;

/// The kind of the next piece, if it is of the same commit.
fn continues(entries: &mut Pieces<'_>, commit_ts: Timestamp) -> Result<Option<PieceKind>> {
    match entries.peek() {
        None => Ok(None),
        Some(Err(error)) => Err(error.clone()),
        Some(Ok((key, _))) => {
            let (of, kind) = split_index_key(key)?;
            Ok((of == commit_ts).then_some(kind))
        }
    }
}

/// The first and the last key of a commit's drawn pieces, the first of which is at hand.
fn span(
    core: &Core,
    engine: &dyn Engine,
    commit_ts: Timestamp,
    first: &(Bytes, Bytes),
) -> Result<(Key, Key)> {
    if let Some(known) = core.spans.get(commit_ts) {
        return Ok(known);
    }
    let floor = index_key(commit_ts, PieceKind::Drawn, &[]);
    let end = Bytes::from(types::records::prefix_end(&floor));
    let all = (Bound::Included(floor), Bound::Excluded(end));
    let last = engine.range(Space::Index, all, true).next().transpose()?;
    let keys = |(key, bytes): &(Bytes, Bytes)| -> Result<Vec<IndexEntry>> {
        Ok(IndexPiece::decode(key, bytes)?.entries)
    };
    let (first, last) = (keys(first)?, keys(last.as_ref().unwrap_or(first))?);
    let (Some(first), Some(last)) = (first.first(), last.last()) else {
        return Err(Error::corrupt("a piece of the index has no keys"));
    };
    let span = (first.key.clone(), last.key.clone());
    core.spans.note(commit_ts, span.clone());
    Ok(span)
}

/// What is known of a commit's drawn pieces: looking for them is what a commit of other keys costs.
enum Drawn {
    /// Nothing.
    Any,
    /// There is this one.
    One(IndexPiece),
    /// There are none.
    None,
}

fn first_of(commit_ts: u64) -> Bytes {
    Bytes::copy_from_slice(&commit_ts.to_be_bytes())
}

/// Finds what one commit changed in the ranges from a key on, in key order.
fn commit_changes(
    engine: &dyn Engine,
    ranges: &[KeyRange],
    commit_ts: Timestamp,
    from: &Key,
    drawn_pieces: &Drawn,
    wanted: usize,
    found: &mut Vec<Found>,
) -> Result<()> {
    for range in ranges {
        if !range.end.is_empty() && range.end <= *from {
            continue;
        }
        let range = KeyRange { start: range.start.clone().max(from.clone()), end: range.end.clone() };
        let mut drawn = match drawn_pieces {
            Drawn::Any => OneKind::open(engine, commit_ts, PieceKind::Drawn, range.clone())?,
            Drawn::One(piece) => OneKind::of(piece.clone(), range.clone()),
            Drawn::None => {
                OneKind::of(IndexPiece { start_ts: Timestamp::ZERO, entries: Vec::new() }, range.clone())
            }
        }
        .peekable();
        let mut named = OneKind::open(engine, commit_ts, PieceKind::Named, range)?.peekable();
        while found.len() < wanted {
            let take_drawn = match (drawn.peek(), named.peek()) {
                (None, None) => break,
                (Some(Ok((_, left))), Some(Ok((_, right)))) => left.key <= right.key,
                (Some(_), _) => true,
                (None, Some(_)) => false,
            };
            let next = if take_drawn { drawn.next() } else { named.next() };
            let Some(next) = next else { break };
            let (start_ts, entry) = next?;
            found.push(Found { start_ts, commit_ts, entry });
        }
    }
    Ok(())
}

/// The entries of one commit's pieces of one kind in a range.
struct OneKind<'a> {
    pieces: crate::engine::Entries<'a>,
    range: KeyRange,
    start_ts: Timestamp,
    entries: std::vec::IntoIter<IndexEntry>,
}

impl<'a> OneKind<'a> {
    /// The entries of one piece.
    fn of(piece: IndexPiece, range: KeyRange) -> OneKind<'a> {
        let IndexPiece { start_ts, entries } = piece;
        OneKind { pieces: Box::new(std::iter::empty()), range, start_ts, entries: entries.into_iter() }
    }

    fn open(
        engine: &'a dyn Engine,
        commit_ts: Timestamp,
        kind: PieceKind,
        range: KeyRange,
    ) -> Result<OneKind<'a>> {
        let floor = index_key(commit_ts, kind, &[]);
        let wanted = index_key(commit_ts, kind, &range.start);
        let start = match kind {
            // The piece that begins before the range may reach into it.
            PieceKind::Drawn => {
                let before = (Bound::Included(floor.clone()), Bound::Included(wanted.clone()));
                let before = engine.range(Space::Index, before, true).next().transpose()?;
                before.map_or(wanted, |(key, _)| key)
            }
            // Its pieces are single keys.
            PieceKind::Named => wanted,
        };
        let end = if range.end.is_empty() {
            Bound::Excluded(Bytes::from(types::records::prefix_end(&floor)))
        } else {
            Bound::Excluded(index_key(commit_ts, kind, &range.end))
        };
        let pieces = engine.range(Space::Index, (Bound::Included(start), end), false);
        Ok(OneKind { pieces, range, start_ts: Timestamp::ZERO, entries: Vec::new().into_iter() })
    }

    fn step(&mut self) -> Result<Option<(Timestamp, IndexEntry)>> {
        loop {
            if let Some(entry) = self.entries.find(|entry| self.range.contains(&entry.key)) {
                return Ok(Some((self.start_ts, entry)));
            }
            let Some(piece) = self.pieces.next() else { return Ok(None) };
            let (key, bytes) = piece?;
            let piece = IndexPiece::decode(&key, &bytes)?;
            self.start_ts = piece.start_ts;
            self.entries = piece.entries.into_iter();
        }
    }
}

impl Iterator for OneKind<'_> {
    type Item = Result<(Timestamp, IndexEntry)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

/// Reads the values after a change and before it.
fn look_up(
    core: &Core,
    engine: &dyn Engine,
    found: &Found,
    from: Timestamp,
) -> Result<(Option<Value>, Option<Value>)> {
    let Found { start_ts: _, commit_ts, entry } = found;
    let IndexEntry { key, deleted, previous } = entry;
    let value = if *deleted {
        None
    } else {
        let newest = core.newest(engine, key)?.map(|(_, version)| version);
        let version = match newest.filter(|version| version.commit_ts == *commit_ts) {
            Some(version) => Some(version),
            None => core.history(engine, key, *commit_ts)?,
        };
        version.ok_or_else(|| core.missing(key, *commit_ts, from))?.value
    };
    let old_value = if *previous == Timestamp::ZERO {
        None
    } else {
        core.history(engine, key, *previous)?.ok_or_else(|| core.missing(key, *previous, from))?.value
    };
    Ok((value, old_value))
}
