//! The naive evaluator: nested loops over rows, three-valued logic by its tables.
//!
//! It shares nothing with the engines: no planner, no join, no NULL handling but what is written here.

use std::collections::BTreeMap;

use super::tree::{Body, Condition, Expr, From, JoinKind, On, Query, Select};

pub(super) type Value = Option<i64>;
type Row = Vec<Value>;
/// Tables: their columns and rows.
pub(super) type Tables = BTreeMap<&'static str, (Vec<&'static str>, Vec<Row>)>;

/// A scalar subquery had several rows.
#[derive(Debug)]
pub(super) struct ManyRows;

/// What FROM makes: every column under its table's name, then the columns that USING merged.
#[derive(Clone, Default)]
pub(super) struct Relation {
    /// Table (none for merged columns) and name.
    pub(super) columns: Vec<(Option<String>, String)>,
    /// What `*` shows and what names without a table mean, by position.
    pub(super) visible: Vec<usize>,
    pub(super) rows: Vec<Row>,
}

impl Relation {
    fn of_table(alias: &str, names: impl Iterator<Item = String>, rows: Vec<Row>) -> Relation {
        let columns: Vec<_> = names.map(|name| (Some(alias.to_owned()), name)).collect();
        Relation { visible: (0..columns.len()).collect(), columns, rows }
    }

    /// The columns that a name without a table may mean.
    pub(super) fn named(&self, name: &str) -> Vec<usize> {
        self.visible.iter().copied().filter(|at| self.columns[*at].1 == name).collect()
    }

    fn find(&self, table: Option<&String>, name: &str) -> Option<usize> {
        match table {
            Some(_) => {
                self.columns.iter().position(|(known, column)| known.as_ref() == table && column == name)
            }
            None => self.named(name).first().copied(),
        }
    }

    /// The columns that both sides show, in the order of the first.
    pub(super) fn common(&self, other: &Relation) -> Vec<String> {
        let names = self.visible.iter().map(|at| self.columns[*at].1.clone());
        names.filter(|name| !other.named(name).is_empty()).collect()
    }
}

/// A query in progress: a row of FROM, or the rows of a group.
struct Frame<'a> {
    relation: &'a Relation,
    rows: &'a [Row],
}

pub(super) struct Evaluator<'a> {
    pub(super) tables: &'a Tables,
}

/// Frames from the outermost to the innermost.
type Frames<'f, 'a> = &'f [&'f Frame<'a>];

impl Evaluator<'_> {
    pub(super) fn answer(&self, query: &Query) -> Result<Vec<Row>, ManyRows> {
        self.query(query, &[])
    }

    fn query(&self, query: &Query, outer: Frames<'_, '_>) -> Result<Vec<Row>, ManyRows> {
        let rows = match &query.body {
            Body::Select(select) => self.select(select, outer)?,
            Body::Union { is_all, left, right } => {
                let mut rows = self.query(left, outer)?;
                rows.extend(self.query(right, outer)?);
                if *is_all { rows } else { distinct(rows) }
            }
        };
        match query.limit {
            None => Ok(rows),
            Some((limit, offset)) => Ok(rows.into_iter().skip(offset).take(limit).collect()),
        }
    }

    fn select(&self, select: &Select, outer: Frames<'_, '_>) -> Result<Vec<Row>, ManyRows> {
        let mut relation = match &select.from {
            None => Relation { rows: vec![Vec::new()], ..Relation::default() },
            Some(from) => self.from(from, outer)?,
        };
        let all = std::mem::take(&mut relation.rows);
        let mut rows = Vec::new();
        for row in all {
            let frame = Frame { relation: &relation, rows: std::slice::from_ref(&row) };
            let passes = match &select.filter {
                None => true,
                Some(filter) => self.condition(filter, &with(outer, &frame))? == Some(true),
            };
            if passes {
                rows.push(row);
            }
        }
        let groups: Vec<Vec<Row>> = match &select.group {
            None => rows.into_iter().map(|row| vec![row]).collect(),
            Some(group) if group.is_empty() => vec![rows],
            Some(group) => {
                let mut groups: BTreeMap<Row, Vec<Row>> = BTreeMap::new();
                for row in rows {
                    let frame = Frame { relation: &relation, rows: std::slice::from_ref(&row) };
                    let frames = with(outer, &frame);
                    let key =
                        group.iter().map(|expr| self.expr(expr, &frames)).collect::<Result<Row, _>>()?;
                    groups.entry(key).or_default().push(row);
                }
                groups.into_values().collect()
            }
        };
        let mut answer = Vec::new();
        for group in &groups {
            let frame = Frame { relation: &relation, rows: group };
            let frames = with(outer, &frame);
            if let Some(having) = &select.having
                && self.condition(having, &frames)? != Some(true)
            {
                continue;
            }
            answer.push(match select.items.as_slice() {
                [] => relation.visible.iter().map(|at| group[0][*at]).collect(),
                items => {
                    items.iter().map(|(expr, _)| self.expr(expr, &frames)).collect::<Result<Row, _>>()?
                }
            });
        }
        Ok(if select.is_distinct { distinct(answer) } else { answer })
    }

    fn from(&self, from: &From, outer: Frames<'_, '_>) -> Result<Relation, ManyRows> {
        match from {
            From::Table { name, alias } => {
                let (columns, rows) = &self.tables[name];
                Ok(Relation::of_table(alias, columns.iter().map(|name| (*name).to_owned()), rows.clone()))
            }
            From::Derived { query, alias } => {
                Ok(Relation::of_table(alias, names(query).into_iter(), self.query(query, &[])?))
            }
            From::Join { kind, left, right, on } => {
                let left = self.from(left, outer)?;
                let right = self.from(right, outer)?;
                self.join(*kind, left, right, on, outer)
            }
        }
    }

    fn join(
        &self,
        kind: JoinKind,
        left: Relation,
        right: Relation,
        on: &On,
        outer: Frames<'_, '_>,
    ) -> Result<Relation, ManyRows> {
        let n_left = left.columns.len();
        let common = match on {
            On::Condition(_) => Vec::new(),
            On::Natural => left.common(&right),
            On::Using(names) => names.clone(),
        };
        let pairs: Vec<(usize, usize)> =
            common.iter().map(|name| (left.named(name)[0], n_left + right.named(name)[0])).collect();
        let mut joined = heading(kind, &left, &right, &common);
        let matches = |row: &Row| {
            let frame = Frame { relation: &joined, rows: std::slice::from_ref(row) };
            match on {
                On::Condition(condition) => {
                    Ok(self.condition(condition, &with(outer, &frame))? == Some(true))
                }
                _ => Ok(pairs.iter().all(|(l, r)| row[*l].is_some() && row[*l] == row[*r])),
            }
        };
        // The preserved side decides what a merged column shows.
        let merged = |mut row: Row| {
            for (l, r) in &pairs {
                let value = if kind == JoinKind::Right { row[*r] } else { row[*l] };
                row.push(value);
            }
            row
        };
        let mut rows = Vec::new();
        let mut met = vec![false; right.rows.len()];
        for left_row in &left.rows {
            let mut is_met = false;
            for (at, right_row) in right.rows.iter().enumerate() {
                let row = merged(left_row.iter().chain(right_row).copied().collect());
                if matches(&row)? {
                    is_met = true;
                    met[at] = true;
                    rows.push(row);
                }
            }
            if !is_met && kind == JoinKind::Left {
                let nulls = std::iter::repeat_n(None, right.columns.len());
                rows.push(merged(left_row.iter().copied().chain(nulls).collect()));
            }
        }
        if kind == JoinKind::Right {
            for (right_row, _) in right.rows.iter().zip(met).filter(|(_, met)| !met) {
                let nulls = std::iter::repeat_n(None, n_left);
                rows.push(merged(nulls.chain(right_row.iter().copied()).collect()));
            }
        }
        joined.rows = rows;
        Ok(joined)
    }

    fn expr(&self, expr: &Expr, frames: Frames<'_, '_>) -> Result<Value, ManyRows> {
        Ok(match expr {
            Expr::Column { table, name } => {
                let found = frames.iter().rev().find_map(|frame| {
                    let at = frame.relation.find(table.as_ref(), name)?;
                    Some(frame.rows.first().and_then(|row| row[at]))
                });
                found.unwrap_or_else(|| panic!("no column {expr}"))
            }
            Expr::Integer(number) => Some(*number),
            Expr::Null => None,
            Expr::Add(left, right) => match (self.expr(left, frames)?, self.expr(right, frames)?) {
                (Some(left), Some(right)) => Some(left + right),
                _ => None,
            },
            Expr::NullIf(left, right) => {
                let (left, right) = (self.expr(left, frames)?, self.expr(right, frames)?);
                if left.is_some() && left == right { None } else { left }
            }
            Expr::Coalesce(left, right) => match self.expr(left, frames)? {
                None => self.expr(right, frames)?,
                value => value,
            },
            Expr::Truth(condition) => self.condition(condition, frames)?.map(i64::from),
            Expr::Case(when, then, otherwise) => match self.condition(when, frames)? {
                Some(true) => self.expr(then, frames)?,
                _ => self.expr(otherwise, frames)?,
            },
            Expr::Scalar(query) => match self.query(query, frames)?.as_slice() {
                [] => None,
                [row] => row[0],
                _ => return Err(ManyRows),
            },
            Expr::Aggregate { function, is_distinct, argument } => {
                self.aggregate(function, *is_distinct, argument.as_deref(), frames)?
            }
        })
    }

    fn aggregate(
        &self,
        function: &str,
        is_distinct: bool,
        argument: Option<&Expr>,
        frames: Frames<'_, '_>,
    ) -> Result<Value, ManyRows> {
        let Some((frame, outer)) = frames.split_last() else { panic!("an aggregate needs rows") };
        let Some(argument) = argument else { return Ok(i64::try_from(frame.rows.len()).ok()) };
        let mut values = Vec::new();
        for row in frame.rows {
            let one = Frame { relation: frame.relation, rows: std::slice::from_ref(row) };
            values.extend(self.expr(argument, &with(outer, &one))?);
        }
        values.sort_unstable();
        // Of few values the estimate is exact.
        if is_distinct || function == "APPROX_COUNT_DISTINCT" {
            values.dedup();
        }
        Ok(match function {
            "COUNT" | "APPROX_COUNT_DISTINCT" => i64::try_from(values.len()).ok(),
            "MIN" => values.first().copied(),
            "MAX" => values.last().copied(),
            "SUM" if values.is_empty() => None,
            "SUM" => Some(values.iter().sum()),
            other => panic!("no aggregate {other}"),
        })
    }

    fn condition(&self, condition: &Condition, frames: Frames<'_, '_>) -> Result<Option<bool>, ManyRows> {
        Ok(match condition {
            Condition::Compare(operator, left, right) => {
                compare(operator, self.expr(left, frames)?, self.expr(right, frames)?)
            }
            Condition::IsNull(expr, negated) => Some(self.expr(expr, frames)?.is_none() != *negated),
            Condition::And(left, right) => {
                match (self.condition(left, frames)?, self.condition(right, frames)?) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                }
            }
            Condition::Or(left, right) => {
                match (self.condition(left, frames)?, self.condition(right, frames)?) {
                    (Some(true), _) | (_, Some(true)) => Some(true),
                    (Some(false), Some(false)) => Some(false),
                    _ => None,
                }
            }
            Condition::Not(inner) => self.condition(inner, frames)?.map(|truth| !truth),
            Condition::IsTrue(inner) => Some(self.condition(inner, frames)? == Some(true)),
            Condition::InList(expr, items, negated) => {
                let items = items.iter().map(|item| self.expr(item, frames)).collect::<Result<Row, _>>()?;
                any_equal(self.expr(expr, frames)?, &items).map(|found| found != *negated)
            }
            Condition::In(expr, query, negated) | Condition::Any(expr, query, negated) => {
                let items: Row = self.query(query, frames)?.into_iter().map(|row| row[0]).collect();
                any_equal(self.expr(expr, frames)?, &items).map(|found| found != *negated)
            }
            Condition::Exists(query, negated) => Some(self.query(query, frames)?.is_empty() == *negated),
        })
    }
}

/// The columns of a join: merged ones first in `*`, then the rest of the first side and of the other,
/// where the first side of a RIGHT JOIN with USING is the right one.
pub(super) fn heading(kind: JoinKind, left: &Relation, right: &Relation, common: &[String]) -> Relation {
    let n_left = left.columns.len();
    let mut columns: Vec<_> = left.columns.iter().chain(&right.columns).cloned().collect();
    let mut merged: Vec<usize> = Vec::new();
    for name in common {
        merged.push(columns.len());
        columns.push((None, name.clone()));
    }
    let rest = |relation: &Relation, offset: usize| {
        let shown = relation.visible.iter().filter(|at| !common.contains(&relation.columns[**at].1));
        shown.map(|at| at + offset).collect::<Vec<_>>()
    };
    let (first, rest) = match kind {
        JoinKind::Right if !common.is_empty() => (right, [rest(right, n_left), rest(left, 0)].concat()),
        _ => (left, [rest(left, 0), rest(right, n_left)].concat()),
    };
    let place = |at: &usize| first.visible.iter().position(|shown| first.columns[*shown].1 == columns[*at].1);
    merged.sort_by_key(place);
    Relation { visible: [merged, rest].concat(), columns, rows: Vec::new() }
}

/// The names of a query's columns.
fn names(query: &Query) -> Vec<String> {
    match &query.body {
        Body::Union { left, .. } => names(left),
        Body::Select(select) => select.items.iter().map(|(_, alias)| alias.clone()).collect(),
    }
}

fn with<'f, 'a>(outer: Frames<'f, 'a>, frame: &'f Frame<'a>) -> Vec<&'f Frame<'a>> {
    outer.iter().copied().chain([frame]).collect()
}

fn distinct(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_unstable();
    rows.dedup();
    rows
}

fn compare(operator: &str, left: Value, right: Value) -> Option<bool> {
    if operator == "<=>" {
        return Some(left == right);
    }
    let (left, right) = (left?, right?);
    Some(match operator {
        "=" => left == right,
        "<>" => left != right,
        "<" => left < right,
        "<=" => left <= right,
        ">" => left > right,
        ">=" => left >= right,
        other => panic!("no operator {other}"),
    })
}

fn any_equal(value: Value, items: &[Value]) -> Option<bool> {
    let mut found = Some(false);
    for item in items {
        match compare("=", value, *item) {
            Some(true) => return Some(true),
            None => found = None,
            Some(false) => {}
        }
    }
    found
}
