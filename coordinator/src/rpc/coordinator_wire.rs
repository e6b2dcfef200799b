//! What both sides of a coordinator's wire turn into messages and back.

use types::records::EpochRecord;
use types::{Epoch, Generation, JobId, Result, TableId, Timestamp};

use super::{missing, proto};
use crate::protocol::{Fault, Opened, Share, TakenOver};

pub(super) fn record_to_wire(record: &EpochRecord) -> proto::EpochRecord {
    proto::EpochRecord {
        epoch: record.epoch.0,
        cut: record.cut.0,
        generation: record.generation.0,
        definitions: record.definitions,
    }
}

pub(super) fn record_from_wire(record: &proto::EpochRecord) -> EpochRecord {
    EpochRecord {
        epoch: Epoch(record.epoch),
        cut: Timestamp(record.cut),
        generation: Generation(record.generation),
        definitions: record.definitions,
    }
}

pub(super) fn faults_to_wire(faults: &[Fault]) -> Vec<proto::Fault> {
    let fault = |fault: &Fault| proto::Fault {
        view: fault.view.0,
        reason: fault.reason.clone(),
        key: fault.key.clone(),
        changed_since: fault.changed_since.map(|at| at.0),
    };
    faults.iter().map(fault).collect()
}

pub(super) fn faults_from_wire(faults: Vec<proto::Fault>) -> Vec<Fault> {
    let fault = |fault: proto::Fault| Fault {
        view: TableId(fault.view),
        reason: fault.reason,
        key: fault.key,
        changed_since: fault.changed_since.map(Timestamp),
    };
    faults.into_iter().map(fault).collect()
}

pub(super) fn opened_to_wire(opened: &Opened) -> proto::OpenResponse {
    proto::OpenResponse { epoch: opened.epoch.0, cut: opened.cut.0 }
}

pub(super) fn opened_from_wire(opened: proto::OpenResponse) -> Opened {
    Opened { epoch: Epoch(opened.epoch), cut: Timestamp(opened.cut) }
}

pub(super) fn taken_to_wire(taken: &TakenOver) -> proto::TakeOverResponse {
    proto::TakeOverResponse {
        generation: taken.generation.0,
        frontier: Some(record_to_wire(&taken.frontier)),
        commit_ts: taken.commit_ts.0,
    }
}

pub(super) fn taken_from_wire(taken: &proto::TakeOverResponse) -> Result<TakenOver> {
    let frontier = taken.frontier.as_ref().ok_or_else(|| missing("the frontier"))?;
    Ok(TakenOver {
        generation: Generation(taken.generation),
        frontier: record_from_wire(frontier),
        commit_ts: Timestamp(taken.commit_ts),
    })
}

pub(super) fn share_to_wire(share: &Share) -> proto::Share {
    proto::Share {
        job: share.job.0,
        taken: Some(taken_to_wire(&share.taken)),
        worker: share.worker,
        n_workers: share.n_workers,
    }
}

pub(super) fn share_from_wire(share: &proto::Share) -> Result<Share> {
    let taken = share.taken.as_ref().ok_or_else(|| missing("a run"))?;
    Ok(Share {
        job: JobId(share.job),
        taken: taken_from_wire(taken)?,
        worker: share.worker,
        n_workers: share.n_workers,
    })
}
