//! Queries as trees, and their text.

use std::fmt::{Display, Formatter, Result};

pub(super) enum Expr {
    Column {
        table: Option<String>,
        name: String,
    },
    Integer(i64),
    Null,
    Add(Box<Expr>, Box<Expr>),
    NullIf(Box<Expr>, Box<Expr>),
    Coalesce(Box<Expr>, Box<Expr>),
    Truth(Box<Condition>),
    Case(Box<Condition>, Box<Expr>, Box<Expr>),
    Scalar(Box<Query>),
    /// Without an argument: COUNT(*).
    Aggregate {
        function: &'static str,
        is_distinct: bool,
        argument: Option<Box<Expr>>,
    },
}

pub(super) enum Condition {
    Compare(&'static str, Expr, Expr),
    IsNull(Expr, bool),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Not(Box<Condition>),
    IsTrue(Box<Condition>),
    InList(Expr, Vec<Expr>, bool),
    In(Expr, Box<Query>, bool),
    /// `= ANY` or `<> ALL`.
    Any(Expr, Box<Query>, bool),
    Exists(Box<Query>, bool),
}

pub(super) struct Query {
    pub(super) body: Body,
    /// LIMIT and OFFSET, for EXISTS only: which rows these are is nobody's promise.
    pub(super) limit: Option<(usize, usize)>,
}

pub(super) enum Body {
    Select(Box<Select>),
    Union { is_all: bool, left: Box<Query>, right: Box<Query> },
}

pub(super) struct Select {
    pub(super) is_distinct: bool,
    /// `*` if empty.
    pub(super) items: Vec<(Expr, String)>,
    pub(super) from: Option<From>,
    pub(super) filter: Option<Condition>,
    /// Groups; of no column if there are only aggregates.
    pub(super) group: Option<Vec<Expr>>,
    pub(super) having: Option<Condition>,
}

pub(super) enum From {
    Table { name: &'static str, alias: String },
    Derived { query: Box<Query>, alias: String },
    Join { kind: JoinKind, left: Box<From>, right: Box<From>, on: On },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum JoinKind {
    Inner,
    Left,
    Right,
}

pub(super) enum On {
    Condition(Condition),
    Using(Vec<String>),
    Natural,
}

fn not(negated: bool) -> &'static str {
    if negated { "NOT " } else { "" }
}

fn list<T: Display>(all: &[T]) -> String {
    all.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Expr::Column { table: Some(table), name } => write!(f, "{table}.{name}"),
            Expr::Column { table: None, name } => write!(f, "{name}"),
            Expr::Integer(number) => write!(f, "{number}"),
            Expr::Null => write!(f, "NULL"),
            Expr::Add(left, right) => write!(f, "({left} + {right})"),
            Expr::NullIf(left, right) => write!(f, "NULLIF({left}, {right})"),
            Expr::Coalesce(left, right) => write!(f, "COALESCE({left}, {right})"),
            Expr::Truth(condition) => write!(f, "({condition})"),
            Expr::Case(when, then, otherwise) => {
                write!(f, "CASE WHEN {when} THEN {then} ELSE {otherwise} END")
            }
            Expr::Scalar(query) => write!(f, "({query})"),
            Expr::Aggregate { argument: None, .. } => write!(f, "COUNT(*)"),
            Expr::Aggregate { function, is_distinct, argument: Some(argument) } => {
                write!(f, "{function}({}{argument})", if *is_distinct { "DISTINCT " } else { "" })
            }
        }
    }
}

impl Display for Condition {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Condition::Compare(operator, left, right) => write!(f, "{left} {operator} {right}"),
            Condition::IsNull(expr, negated) => write!(f, "{expr} IS {}NULL", not(*negated)),
            Condition::And(left, right) => write!(f, "({left} AND {right})"),
            Condition::Or(left, right) => write!(f, "({left} OR {right})"),
            Condition::Not(inner) => write!(f, "NOT ({inner})"),
            Condition::IsTrue(inner) => write!(f, "({inner}) IS TRUE"),
            Condition::InList(expr, items, negated) => {
                write!(f, "{expr} {}IN ({})", not(*negated), list(items))
            }
            Condition::In(expr, query, negated) => write!(f, "{expr} {}IN ({query})", not(*negated)),
            Condition::Any(expr, query, false) => write!(f, "{expr} = ANY ({query})"),
            Condition::Any(expr, query, true) => write!(f, "{expr} <> ALL ({query})"),
            Condition::Exists(query, negated) => write!(f, "{}EXISTS ({query})", not(*negated)),
        }
    }
}

impl Display for Query {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match &self.body {
            Body::Select(select) => write!(f, "{select}")?,
            Body::Union { is_all, left, right } => {
                write!(f, "{left} UNION {}{right}", if *is_all { "ALL " } else { "" })?;
            }
        }
        match self.limit {
            None => Ok(()),
            Some((limit, 0)) => write!(f, " LIMIT {limit}"),
            Some((limit, offset)) => write!(f, " LIMIT {limit} OFFSET {offset}"),
        }
    }
}

impl Display for Select {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "SELECT {}", if self.is_distinct { "DISTINCT " } else { "" })?;
        if self.items.is_empty() {
            write!(f, "*")?;
        }
        let items: Vec<String> =
            self.items.iter().map(|(expr, alias)| format!("{expr} AS {alias}")).collect();
        write!(f, "{}", list(&items))?;
        if let Some(from) = &self.from {
            write!(f, " FROM {from}")?;
        }
        if let Some(filter) = &self.filter {
            write!(f, " WHERE {filter}")?;
        }
        match self.group.as_deref() {
            None | Some([]) => {}
            Some(group) => write!(f, " GROUP BY {}", list(group))?,
        }
        match &self.having {
            Some(having) => write!(f, " HAVING {having}"),
            None => Ok(()),
        }
    }
}

impl Display for From {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            From::Table { name, alias } => write!(f, "{name} {alias}"),
            From::Derived { query, alias } => write!(f, "({query}) {alias}"),
            From::Join { kind, left, right, on } => {
                let natural = if matches!(on, On::Natural) { "NATURAL " } else { "" };
                let kind = match kind {
                    JoinKind::Inner => "",
                    JoinKind::Left => "LEFT ",
                    JoinKind::Right => "RIGHT ",
                };
                write!(f, "{left} {natural}{kind}JOIN ")?;
                match right.as_ref() {
                    join @ From::Join { .. } => write!(f, "({join})")?,
                    other => write!(f, "{other}")?,
                }
                match on {
                    On::Condition(condition) => write!(f, " ON {condition}"),
                    On::Using(names) => write!(f, " USING ({})", names.join(", ")),
                    On::Natural => Ok(()),
                }
            }
        }
    }
}
