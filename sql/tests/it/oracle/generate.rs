//! Random queries from a row of numbers: a smaller row, or smaller numbers, make a simpler query.

use super::evaluate::{Relation, Tables, Value, heading};
use super::tree::{Body, Condition, Expr, From, JoinKind, On, Query, Select};

/// Numbers that choices are read from; when they are used up, every choice is the simplest.
pub(super) struct Choices<'a> {
    numbers: std::slice::Iter<'a, u16>,
}

impl<'a> Choices<'a> {
    pub(super) fn new(numbers: &'a [u16]) -> Choices<'a> {
        Choices { numbers: numbers.iter() }
    }

    /// A number below a limit.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::from(self.numbers.next().copied().unwrap_or(0)) % limit
    }

    /// True so many times of ten.
    fn chance(&mut self, tenths: usize) -> bool {
        self.below(10) >= 10 - tenths
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    /// A small number or NULL.
    pub(super) fn value(&mut self) -> Value {
        match self.below(6) {
            0..=3 => i64::try_from(self.below(4)).ok(),
            _ => None,
        }
    }
}

/// What a subquery is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    /// Rows of so many columns.
    Rows(usize),
    /// One column of any rows.
    Column,
    /// One value.
    Value,
    /// Only whether there are rows.
    Existence,
}

pub(super) struct Generator<'a, 'c> {
    pub(super) choices: &'c mut Choices<'a>,
    pub(super) tables: &'c Tables,
    n_aliases: usize,
    /// What FROM makes of each query around, from the outermost to the innermost.
    scopes: Vec<Relation>,
}

impl<'a, 'c> Generator<'a, 'c> {
    pub(super) fn new(choices: &'c mut Choices<'a>, tables: &'c Tables) -> Generator<'a, 'c> {
        Generator { choices, tables, n_aliases: 0, scopes: Vec::new() }
    }

    pub(super) fn outermost(&mut self) -> Query {
        let n_columns = 1 + self.choices.below(3);
        self.query(3, Want::Rows(n_columns))
    }

    fn query(&mut self, depth: usize, want: Want) -> Query {
        if want != Want::Value && self.choices.chance(1) {
            let want = if want == Want::Existence { Want::Column } else { want };
            let depth = depth.min(2);
            let left = Box::new(self.one_select(depth, want));
            let right = Box::new(self.one_select(depth, want));
            return Query { body: Body::Union { is_all: self.choices.chance(5), left, right }, limit: None };
        }
        let limit = if want == Want::Existence && self.choices.chance(1) {
            Some((self.choices.below(3), self.choices.below(2)))
        } else {
            None
        };
        Query { limit, ..self.one_select(depth, want) }
    }

    fn one_select(&mut self, depth: usize, want: Want) -> Query {
        Query { body: Body::Select(Box::new(self.select(depth, want))), limit: None }
    }

    fn select(&mut self, depth: usize, want: Want) -> Select {
        let (from, relation) = if self.choices.below(25) == 24 {
            (None, Relation::default())
        } else {
            let (from, relation) = self.from(depth);
            (Some(from), relation)
        };
        let is_star = matches!(want, Want::Rows(_)) && depth == 3 && from.is_some() && self.choices.chance(2);
        self.scopes.push(relation);
        let filter = self.choices.chance(8).then(|| self.condition(depth, 2));
        let mut select =
            Select { is_distinct: false, items: Vec::new(), from, filter, group: None, having: None };
        let is_grouped = match want {
            Want::Value => self.choices.below(10) < 9,
            _ => !is_star && select.from.is_some() && self.choices.chance(3),
        };
        if is_grouped && select.from.is_some() {
            self.grouped(&mut select, depth, want);
        } else if !is_star {
            select.items = self.items(want, &mut |generator| generator.expr(depth, 2));
        }
        self.scopes.pop();
        select.is_distinct = self.choices.chance(1);
        select
    }

    fn items(&mut self, want: Want, item: &mut dyn FnMut(&mut Self) -> Expr) -> Vec<(Expr, String)> {
        let n_items = if let Want::Rows(n_items) = want { n_items } else { 1 };
        // Some items are called like columns, so that joins can name them in USING.
        let names: Vec<String> = ["k", "y", "v"].map(str::to_owned).to_vec();
        (0..n_items)
            .map(|at| {
                let name = if self.choices.chance(3) { names[at].clone() } else { format!("c{at}") };
                (item(self), name)
            })
            .collect()
    }

    /// GROUP BY, aggregates and HAVING.
    fn grouped(&mut self, select: &mut Select, depth: usize, want: Want) {
        let n_groups = if want == Want::Value { 0 } else { self.choices.below(3) };
        let mut group = Vec::new();
        for _ in 0..n_groups {
            group.push(self.own_column());
        }
        let own: Vec<(Option<String>, String)> = group
            .iter()
            .filter_map(|expr| match expr {
                Expr::Column { table, name } => Some((table.clone(), name.clone())),
                _ => None,
            })
            .collect();
        select.items = self.items(want, &mut |generator| generator.group_expr(&own));
        // In HAVING a column's name would mean the item.
        for (at, (_, name)) in select.items.iter_mut().enumerate() {
            *name = format!("c{at}");
        }
        if self.choices.chance(4) {
            let operator = self.operator();
            let left = self.group_expr(&own);
            let right = self.group_expr(&own);
            select.having = Some(if depth > 1 && self.choices.chance(3) {
                // Only what is grouped can be seen from here; a subquery sees nothing of it.
                let scopes = std::mem::take(&mut self.scopes);
                let query = self.query(depth - 1, Want::Column);
                self.scopes = scopes;
                Condition::In(left, Box::new(query), self.choices.chance(5))
            } else {
                Condition::Compare(operator, left, right)
            });
        }
        let has_aggregate = |condition: &Condition| match condition {
            Condition::Compare(_, left, right) => aggregates(left) || aggregates(right),
            Condition::In(left, ..) => aggregates(left),
            _ => false,
        };
        let is_plain = !select.items.iter().any(|(expr, _)| aggregates(expr))
            && !select.having.as_ref().is_some_and(has_aggregate);
        if group.is_empty() && is_plain {
            select.items[0].0 = Expr::Aggregate { function: "COUNT", is_distinct: false, argument: None };
        }
        select.group = Some(group);
    }

    /// An expression over a group.
    fn group_expr(&mut self, own: &[(Option<String>, String)]) -> Expr {
        match self.choices.below(10) {
            0..=3 => Expr::Aggregate { function: "COUNT", is_distinct: false, argument: None },
            4..=6 => {
                let function = self.choices.of(&["COUNT", "SUM", "MIN", "MAX", "APPROX_COUNT_DISTINCT"]);
                let argument = self.own_column();
                let is_distinct = self.choices.chance(3);
                Expr::Aggregate { function, is_distinct, argument: Some(Box::new(argument)) }
            }
            7..=8 if !own.is_empty() => {
                let (table, name) = self.choices.of(own);
                Expr::Column { table, name }
            }
            8 => self.outer_column().unwrap_or(Expr::Integer(1)),
            _ => {
                let (left, right) = (self.group_expr(own), self.group_expr(own));
                if self.choices.chance(5) {
                    Expr::Add(Box::new(left), Box::new(right))
                } else {
                    Expr::Coalesce(Box::new(left), Box::new(right))
                }
            }
        }
    }

    fn from(&mut self, depth: usize) -> (From, Relation) {
        match self.choices.below(10) {
            0..=4 => self.table(depth),
            5..=7 => self.join(depth, 1),
            _ => self.join(depth, 2),
        }
    }

    fn table(&mut self, depth: usize) -> (From, Relation) {
        self.n_aliases += 1;
        let alias = format!("a{}", self.n_aliases);
        let of_names = |names: Vec<String>| {
            let columns: Vec<_> = names.into_iter().map(|name| (Some(alias.clone()), name)).collect();
            Relation { visible: (0..columns.len()).collect(), columns, ..Relation::default() }
        };
        if depth > 1 && self.choices.chance(1) {
            let n_columns = 1 + self.choices.below(2);
            let scopes = std::mem::take(&mut self.scopes);
            let query = self.query(depth - 1, Want::Rows(n_columns));
            self.scopes = scopes;
            let names = derived_names(&query);
            return (From::Derived { query: Box::new(query), alias: alias.clone() }, of_names(names));
        }
        let names: Vec<&'static str> = self.tables.keys().copied().collect();
        let name = self.choices.of(&names);
        let columns = self.tables[name].0.iter().map(|name| (*name).to_owned()).collect();
        (From::Table { name, alias: alias.clone() }, of_names(columns))
    }

    fn join(&mut self, depth: usize, n_joins: usize) -> (From, Relation) {
        let (mut left, mut left_relation) = self.table(depth);
        for _ in 0..n_joins {
            let (right, right_relation) =
                if n_joins > 1 && self.choices.chance(1) { self.join(depth, 1) } else { self.table(depth) };
            let kind = self.choices.of(&[JoinKind::Inner, JoinKind::Left, JoinKind::Right]);
            let common = left_relation.common(&right_relation);
            let is_clear =
                |name: &String| left_relation.named(name).len() == 1 && right_relation.named(name).len() == 1;
            let usable: Vec<String> = common.iter().filter(|name| is_clear(name)).cloned().collect();
            let (on, names) = match self.choices.below(6) {
                3 | 4 if !usable.is_empty() => {
                    let mut names = vec![self.choices.of(&usable)];
                    if self.choices.chance(3) {
                        names = usable;
                    }
                    (On::Using(names.clone()), names)
                }
                5 if !usable.is_empty() && usable.len() == common.len() => (On::Natural, usable),
                _ => {
                    let both = heading(kind, &left_relation, &right_relation, &[]);
                    // Names of the queries around may be hidden here; ON looks at its join only.
                    let scopes = std::mem::replace(&mut self.scopes, vec![both]);
                    let depth = if self.choices.chance(1) { depth } else { 1 };
                    let condition = self.condition(depth, 1);
                    self.scopes = scopes;
                    (On::Condition(condition), Vec::new())
                }
            };
            left_relation = heading(kind, &left_relation, &right_relation, &names);
            left = From::Join { kind, left: Box::new(left), right: Box::new(right), on };
        }
        (left, left_relation)
    }

    /// A name without a table, if it means one column here and the scopes further in do not know it.
    fn column_of(&mut self, scope: usize) -> Option<Expr> {
        let relation = &self.scopes[scope];
        let inner = &self.scopes[scope + 1..];
        let is_hidden =
            |name: &str| inner.iter().any(|inner| inner.columns.iter().any(|known| known.1 == name));
        let mut all: Vec<(Option<String>, String)> =
            relation.columns.iter().filter(|(table, _)| table.is_some()).cloned().collect();
        let bare = relation.visible.iter().map(|at| relation.columns[*at].1.clone());
        let bare: Vec<_> = bare
            .filter(|name| relation.named(name).len() == 1 && !is_hidden(name))
            .map(|name| (None, name))
            .collect();
        all.extend(bare);
        if all.is_empty() {
            return None;
        }
        let (table, name) = self.choices.of(&all);
        Some(Expr::Column { table, name })
    }

    fn own_column(&mut self) -> Expr {
        let own = self.scopes.len() - 1;
        self.column_of(own).unwrap_or(Expr::Integer(0))
    }

    /// A column of the query next around, seldom of one further out.
    fn outer_column(&mut self) -> Option<Expr> {
        let n_outer = self.scopes.len().checked_sub(1).filter(|n_outer| *n_outer > 0)?;
        let scope = if self.choices.below(20) == 19 { self.choices.below(n_outer) } else { n_outer - 1 };
        self.column_of(scope)
    }

    fn expr(&mut self, depth: usize, size: usize) -> Expr {
        let limit = if size == 0 { 13 } else { 20 };
        match self.choices.below(limit) {
            0..=7 => self.own_column(),
            8..=9 => self.outer_column().unwrap_or(Expr::Integer(2)),
            10..=11 => Expr::Integer(i64::try_from(self.choices.below(4)).unwrap_or(0)),
            12 => Expr::Null,
            13 => Expr::Add(Box::new(self.expr(depth, size - 1)), Box::new(self.expr(depth, 0))),
            14 => Expr::NullIf(Box::new(self.expr(depth, size - 1)), Box::new(self.expr(depth, 0))),
            15 => Expr::Coalesce(Box::new(self.expr(depth, size - 1)), Box::new(self.expr(depth, 0))),
            16 => Expr::Truth(Box::new(self.condition(depth, size - 1))),
            17 => Expr::Case(
                Box::new(self.condition(depth, size - 1)),
                Box::new(self.expr(depth, 0)),
                Box::new(self.expr(depth, 0)),
            ),
            _ if depth > 1 => Expr::Scalar(Box::new(self.query(depth - 1, Want::Value))),
            _ => self.own_column(),
        }
    }

    fn operator(&mut self) -> &'static str {
        self.choices.of(&["=", "=", "<>", "<", ">=", "<=>"])
    }

    fn condition(&mut self, depth: usize, size: usize) -> Condition {
        match self.choices.below(20) {
            0..=4 => {
                let left = self.expr(depth, size.min(1));
                // Correlated conditions are mostly equalities, else few subqueries were accepted.
                match self.outer_column() {
                    Some(outer) if self.choices.chance(6) => Condition::Compare("=", left, outer),
                    _ => {
                        let operator = self.operator();
                        Condition::Compare(operator, left, self.expr(depth, 0))
                    }
                }
            }
            5 => Condition::IsNull(self.expr(depth, size.min(1)), self.choices.chance(5)),
            6 => {
                let items = (0..=self.choices.below(2)).map(|_| self.expr(depth, 0)).collect();
                Condition::InList(self.expr(depth, 0), items, self.choices.chance(5))
            }
            7..=11 if size > 0 => {
                let kind = self.choices.below(6);
                let left = Box::new(self.condition(depth, size - 1));
                match kind {
                    0..=1 => Condition::And(left, Box::new(self.condition(depth, size - 1))),
                    2..=3 => Condition::Or(left, Box::new(self.condition(depth, size - 1))),
                    4 => Condition::Not(left),
                    _ => Condition::IsTrue(left),
                }
            }
            12..=14 if depth > 1 => {
                let query = Box::new(self.query(depth - 1, Want::Existence));
                Condition::Exists(query, self.choices.chance(5))
            }
            15 if depth > 1 => {
                let left = self.expr(depth, size.min(1));
                let query = Box::new(self.query(depth - 1, Want::Column));
                Condition::Any(left, query, self.choices.chance(5))
            }
            16..=19 if depth > 1 => {
                let left = self.expr(depth, size.min(1));
                let query = Box::new(self.query(depth - 1, Want::Column));
                Condition::In(left, query, self.choices.chance(5))
            }
            _ => {
                let operator = self.operator();
                Condition::Compare(operator, self.expr(depth, 0), self.expr(depth, 0))
            }
        }
    }
}

fn derived_names(query: &Query) -> Vec<String> {
    match &query.body {
        Body::Union { left, .. } => derived_names(left),
        Body::Select(select) => select.items.iter().map(|(_, alias)| alias.clone()).collect(),
    }
}

/// Whether there is an aggregate in an expression over a group.
fn aggregates(expr: &Expr) -> bool {
    match expr {
        Expr::Aggregate { .. } => true,
        Expr::Add(left, right) | Expr::Coalesce(left, right) => aggregates(left) || aggregates(right),
        _ => false,
    }
}
