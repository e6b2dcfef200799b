//! Nexmark bids and auctions through the operators alone, in changes per CPU second of one core.
//!
//! `cargo bench -p operators`. Input is generated before the clock starts; every epoch ends with a
//! barrier and a seal, whose runs are kept but not stored. For orientation, the `dbsp` crate on a loaded
//! machine of two cores: filter and projection 615k to 875k, grouped aggregates 382k, two-way join 415k
//! to 780k.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints and panics")]

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::compute::kernels::{cmp, numeric};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use nexmark::EventGenerator;
use nexmark::config::NexmarkConfig;
use nexmark::event::Event;
use operators::{
    AggregateCall, AggregateFunction, Dataflow, DataflowOptions, Expression, JoinKind, Node, NodeId,
    Operator, Plan, Run, RunNamer, RunSource,
};
use types::{Delta, Epoch, Error, Generation, JobId, RunName, TableId};

const AUCTIONS: TableId = TableId(1);
const BIDS: TableId = TableId(2);
const EVENTS: usize = 1_000_000;
const BATCH_ROWS: usize = 4096;
const EPOCH_ROWS: usize = 50_000;

fn schema(names: &[&str]) -> SchemaRef {
    Arc::new(Schema::new(
        names.iter().map(|name| Field::new(*name, DataType::Int64, false)).collect::<Vec<_>>(),
    ))
}

fn auction_schema() -> SchemaRef {
    schema(&["id", "seller", "category", "initial_bid", "expires"])
}

fn bid_schema() -> SchemaRef {
    schema(&["auction", "bidder", "price", "date_time"])
}

/// Batches of changes in the order of events; `retract_every` rows one is deleted again later.
fn input(retract_every: usize) -> Vec<(TableId, Delta)> {
    let mut batches = Vec::new();
    let mut bids: Vec<[i64; 4]> = Vec::new();
    let mut auctions: Vec<[i64; 5]> = Vec::new();
    let mut weights: Vec<i64> = Vec::new();
    let mut n_bids = 0usize;
    for event in EventGenerator::new(NexmarkConfig::default()).take(EVENTS) {
        match event {
            Event::Auction(auction) => auctions.push([
                auction.id as i64,
                auction.seller as i64,
                auction.category as i64,
                auction.initial_bid as i64,
                auction.expires as i64,
            ]),
            Event::Bid(bid) => {
                bids.push([bid.auction as i64, bid.bidder as i64, bid.price as i64, bid.date_time as i64]);
                weights.push(1);
                n_bids += 1;
                if retract_every > 0 && n_bids.is_multiple_of(retract_every) {
                    let old = bids[bids.len() / 2];
                    if weights[bids.len() / 2] > 0 {
                        bids.push(old);
                        weights.push(-1);
                    }
                }
            }
            Event::Person(_) => {}
        }
        if bids.len() >= BATCH_ROWS {
            flush(&mut batches, &mut auctions, &mut bids, &mut weights);
        }
    }
    flush(&mut batches, &mut auctions, &mut bids, &mut weights);
    batches
}

fn flush(
    batches: &mut Vec<(TableId, Delta)>,
    auctions: &mut Vec<[i64; 5]>,
    bids: &mut Vec<[i64; 4]>,
    weights: &mut Vec<i64>,
) {
    batches.push((AUCTIONS, Delta::inserts(columns(auction_schema(), std::mem::take(auctions)))));
    let batch = columns(bid_schema(), std::mem::take(bids));
    batches.push((BIDS, Delta::new(batch, Int64Array::from(std::mem::take(weights)))));
}

fn columns<const N: usize>(schema: SchemaRef, rows: Vec<[i64; N]>) -> RecordBatch {
    let column =
        |index: usize| Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row[index]))) as ArrayRef;
    RecordBatch::try_new(schema, (0..N).map(column).collect()).unwrap()
}

/// An expression by a function over columns.
struct Vectorised {
    name: &'static str,
    data_type: DataType,
    evaluate: fn(&RecordBatch) -> ArrayRef,
}

impl std::fmt::Debug for Vectorised {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

impl Expression for Vectorised {
    fn evaluate(&self, batch: &RecordBatch) -> types::Result<ArrayRef> {
        Ok((self.evaluate)(batch))
    }

    fn data_type(&self) -> DataType {
        self.data_type.clone()
    }

    fn describe(&self) -> String {
        self.name.to_owned()
    }
}

fn node(operator: Operator, inputs: &[usize], schema: SchemaRef) -> Node {
    let inputs = inputs.iter().map(|input| NodeId(*input)).collect();
    Node { operator, inputs, schema, stream_key: None, append_only: false }
}

fn bids() -> Node {
    node(Operator::Source { table: BIDS, columns: vec![0, 1, 2, 3] }, &[], bid_schema())
}

fn column(name: &'static str, evaluate: fn(&RecordBatch) -> ArrayRef) -> Arc<dyn Expression> {
    Arc::new(Vectorised { name, data_type: DataType::Int64, evaluate })
}

/// Nexmark q1: every bid, its price in another currency.
fn projection() -> Plan {
    let price = |batch: &RecordBatch| -> ArrayRef {
        let price = numeric::mul(batch.column(2), &Int64Array::new_scalar(908)).unwrap();
        numeric::div(&price, &Int64Array::new_scalar(1000)).unwrap()
    };
    let expressions = vec![
        column("auction", |batch| Arc::clone(batch.column(0))),
        column("bidder", |batch| Arc::clone(batch.column(1))),
        column("price", price),
        column("date_time", |batch| Arc::clone(batch.column(3))),
    ];
    Plan { nodes: vec![bids(), node(Operator::Project { expressions }, &[0], bid_schema())] }
}

/// Nexmark q2: bids on some auctions.
fn filter_and_projection() -> Plan {
    let predicate = Vectorised {
        name: "auction % 123 = 0",
        data_type: DataType::Boolean,
        evaluate: |batch| {
            let rest = numeric::rem(batch.column(0), &Int64Array::new_scalar(123)).unwrap();
            Arc::new(cmp::eq(&rest, &Int64Array::new_scalar(0)).unwrap())
        },
    };
    let expressions = vec![
        column("auction", |batch| Arc::clone(batch.column(0))),
        column("price", |batch| Arc::clone(batch.column(2))),
    ];
    Plan {
        nodes: vec![
            bids(),
            node(Operator::Filter { predicate: Arc::new(predicate) }, &[0], bid_schema()),
            node(Operator::Project { expressions }, &[1], schema(&["auction", "price"])),
        ],
    }
}

/// Count, least, greatest and sum of the bids of each auction.
fn grouped() -> Plan {
    let functions =
        [AggregateFunction::Count, AggregateFunction::Min, AggregateFunction::Max, AggregateFunction::Sum];
    let mut fields = vec![Field::new("auction", DataType::Int64, false)];
    let mut calls = Vec::new();
    for function in functions {
        let arguments = if function == AggregateFunction::Count { vec![] } else { vec![2] };
        fields.push(Field::new(
            function.name(),
            function.output_type(&DataType::Int64, false).unwrap(),
            true,
        ));
        calls.push(AggregateCall { function, arguments, distinct: false, filter: None });
    }
    let aggregate = Operator::Aggregate { group: vec![0], calls };
    Plan { nodes: vec![bids(), node(aggregate, &[0], Arc::new(Schema::new(fields)))] }
}

/// Bids with seller and category of their auction.
fn join() -> Plan {
    let auctions = Operator::Source { table: AUCTIONS, columns: vec![0, 1, 2] };
    let operator = Operator::Join {
        kind: JoinKind::Inner,
        left_keys: vec![0],
        right_keys: vec![0],
        null_equal: false,
        residual: None,
    };
    let joined = schema(&["auction", "bidder", "price", "date_time", "id", "seller", "category"]);
    Plan {
        nodes: vec![
            bids(),
            node(auctions, &[], schema(&["id", "seller", "category"])),
            node(operator, &[0, 1], joined),
        ],
    }
}

/// Nothing is ever read again: sealed runs stay in memory.
struct NoRuns;

impl RunSource for NoRuns {
    fn read_run(&self, name: RunName) -> types::Result<Run> {
        Err(Error::corrupt(format!("run {name:?} was not kept in memory")))
    }
}

/// CPU seconds of this thread.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

fn measure(name: &str, plan: Plan, input: &[(TableId, Delta)]) {
    let options = DataflowOptions { parallelism: 1, memory_bytes_max: 4 << 30 };
    let tables = plan.tables();
    let mut dataflow = Dataflow::open(Arc::new(plan), vec![], Arc::new(NoRuns), options).unwrap();
    let (mut n_changes, mut n_epoch, mut epoch, mut n_out, mut n_sealed) = (0usize, 0, 0, 0, 0usize);
    let mut checksum = 0i64;
    let start = cpu_seconds();
    for (table, delta) in input.iter().filter(|(table, _)| tables.contains(table)) {
        dataflow.push(*table, delta).unwrap();
        n_changes += delta.n_rows();
        n_epoch += delta.n_rows();
        if n_epoch >= EPOCH_ROWS {
            n_epoch = 0;
            epoch += 1;
            let output = dataflow.barrier().unwrap();
            n_out += output.n_rows();
            checksum = checksum
                .wrapping_add(output.column(0).as_primitive::<Int64Type>().values().iter().sum::<i64>());
            let mut namer = RunNamer::new(JobId(1), Generation(1), Epoch(epoch), TableId(3));
            n_sealed +=
                dataflow.seal(&mut namer).unwrap().runs.iter().map(|run| run.bytes.len()).sum::<usize>();
        }
    }
    let seconds = cpu_seconds() - start;
    let state: u64 = dataflow.statistics().iter().map(|operator| operator.state_bytes).sum();
    println!(
        "{name:28} {:>9.0} changes/CPU-s  ({n_changes} in, {n_out} out, {} MB sealed, {} MB state, check {checksum})",
        n_changes as f64 / seconds,
        n_sealed / 1_000_000,
        state / 1_000_000,
    );
}

fn main() {
    for retract_every in [0, 10] {
        let input = input(retract_every);
        println!("retractions: one in {retract_every} (0: none)");
        measure("projection (q1)", projection(), &input);
        measure("filter and projection (q2)", filter_and_projection(), &input);
        measure("count, min, max, sum", grouped(), &input);
        measure("join of bids and auctions", join(), &input);
    }
}
