//! USING and NATURAL: joins by the names of columns become joins with ON.
//!
//! The batch engine would take such a column from the left side always, and show `*` in an order of its
//! own. In MySQL the column is the preserved side's, `*` shows the merged columns first, and a name without
//! a table means the merged column.

use sqlparser::ast::{
    BinaryOperator, Cte, Expr, Ident, Join, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, Query,
    SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor, TableWithJoins, Value,
};
use types::{Error, Result};

use super::items::Items;
use super::{Rewrite, quoted, strip};
use crate::parse::unsupported;

/// A column as `*` shows it and as its name without a table means it.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    name: String,
    expr: Expr,
    is_merged: bool,
}

impl Shown {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn expr(&self) -> &Expr {
        &self.expr
    }

    pub(super) fn is_merged(&self) -> bool {
        self.is_merged
    }
}

/// The columns of a FROM; not known where nobody asks.
pub(super) type Scope = Option<Vec<Shown>>;

/// The columns of a table by database and name, in lower case.
pub(crate) type ColumnsOf<'a> = &'a dyn Fn(&str, &str) -> Result<Vec<String>>;

/// What is known of a name of WITH.
#[derive(Clone, Debug)]
pub(super) struct CteColumns {
    pub(super) name: String,
    /// None if it cannot be told.
    columns: Option<Vec<String>>,
}

/// Whether a FROM joins by names of columns.
fn joins_by_name(from: &[TableWithJoins]) -> bool {
    let nested = |factor: &TableFactor| match factor {
        TableFactor::NestedJoin { table_with_joins, .. } => {
            joins_by_name(std::slice::from_ref(table_with_joins))
        }
        _ => false,
    };
    from.iter().any(|table| {
        nested(&table.relation)
            || table.joins.iter().any(|join| {
                let by_name = matches!(
                    constraint(&join.join_operator),
                    Some(JoinConstraint::Using(_) | JoinConstraint::Natural)
                );
                by_name || nested(&join.relation)
            })
    })
}

/// The constraint of a join that may have one.
pub(crate) fn constraint(operator: &JoinOperator) -> Option<&JoinConstraint> {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)
        | JoinOperator::CrossJoin(constraint)
        | JoinOperator::StraightJoin(constraint) => Some(constraint),
        _ => None,
    }
}

impl Rewrite<'_> {
    /// Rewrites a FROM, and tells its columns if names may mean merged ones.
    pub(super) fn from(&mut self, from: &mut [TableWithJoins]) -> Result<Scope> {
        check_aliases(from)?;
        let is_asked = joins_by_name(from) || self.scopes.iter().any(Option::is_some);
        let mut all = is_asked.then(Vec::new);
        for table in from {
            let shown = self.table_with_joins(table, is_asked)?;
            all = all.zip(shown).map(|(all, shown)| [all, shown].concat());
        }
        Ok(all)
    }

    fn table_with_joins(&mut self, table: &mut TableWithJoins, is_asked: bool) -> Result<Scope> {
        let mut left = self.factor(&mut table.relation, is_asked)?;
        for join in &mut table.joins {
            let right = self.factor(&mut join.relation, is_asked)?;
            left = self.join(join, left, right)?;
        }
        Ok(left)
    }

    fn factor(&mut self, factor: &mut TableFactor, is_asked: bool) -> Result<Scope> {
        if let TableFactor::NestedJoin { table_with_joins, alias } = factor {
            if alias.is_some() {
                return Err(unsupported("an alias of parenthesized joins"));
            }
            return self.table_with_joins(table_with_joins, is_asked);
        }
        self.table_factor(factor)?;
        if !is_asked {
            return Ok(None);
        }
        let (alias, names) = self.factor_columns(factor, &self.ctes)?;
        let shown = |name: String| Shown {
            expr: Expr::CompoundIdentifier(vec![quoted(&alias), quoted(&name)]),
            name,
            is_merged: false,
        };
        Ok(Some(names.into_iter().map(shown).collect()))
    }

    /// Rewrites the condition of a join; the columns of both sides become the join's.
    fn join(&mut self, join: &mut Join, left: Scope, right: Scope) -> Result<Scope> {
        let by_name = match constraint(&join.join_operator) {
            Some(JoinConstraint::Using(names)) => {
                Some(Some(names.iter().map(last_part).collect::<Result<_>>()?))
            }
            Some(JoinConstraint::Natural) => Some(None),
            _ => None,
        };
        let (Some(left), Some(right)) = (left, right) else {
            self.join_operator(&mut join.join_operator)?;
            return Ok(None);
        };
        let Some(names) = by_name else {
            let both = [left, right].concat();
            self.scopes.push(Some(both));
            let rewritten = self.join_operator(&mut join.join_operator);
            let both = self.scopes.pop().flatten();
            rewritten?;
            return Ok(both);
        };
        let is_right = match &join.join_operator {
            JoinOperator::Right(_) | JoinOperator::RightOuter(_) => true,
            JoinOperator::FullOuter(_) => return Err(unsupported("FULL JOIN with USING or NATURAL")),
            _ => false,
        };
        let names = names.unwrap_or_else(|| common(&left, &right));
        let mut merged = Vec::with_capacity(names.len());
        let mut condition: Option<Expr> = None;
        for name in &names {
            let (one, other) = (only(&left, name)?, only(&right, name)?);
            let equal = binary(one.clone(), BinaryOperator::Eq, other.clone());
            condition = Some(match condition {
                None => equal,
                Some(all) => binary(all, BinaryOperator::And, equal),
            });
            // The side whose rows all stay has the value where the other has none.
            let expr = if is_right { other } else { one };
            merged.push(Shown { name: name.clone(), expr, is_merged: true });
        }
        self.set_condition(&mut join.join_operator, condition)?;
        let (first, second) = if is_right { (&right, &left) } else { (&left, &right) };
        merged.sort_by_key(|shown| first.iter().position(|known| known.name == shown.name));
        let rest = first.iter().chain(second).filter(|shown| !names.contains(&shown.name)).cloned();
        Ok(Some(merged.into_iter().chain(rest).collect()))
    }

    /// Joins without a common name have no condition.
    fn set_condition(&mut self, operator: &mut JoinOperator, condition: Option<Expr>) -> Result<()> {
        let is_inner = matches!(
            operator,
            JoinOperator::Join(_)
                | JoinOperator::Inner(_)
                | JoinOperator::StraightJoin(_)
                | JoinOperator::CrossJoin(_)
        );
        let constraint = match condition {
            Some(condition) => JoinConstraint::On(condition),
            None if is_inner => JoinConstraint::None,
            None => JoinConstraint::On(Expr::Value(Value::Boolean(true).into())),
        };
        match operator {
            JoinOperator::Join(known)
            | JoinOperator::Inner(known)
            | JoinOperator::Left(known)
            | JoinOperator::LeftOuter(known)
            | JoinOperator::Right(known)
            | JoinOperator::RightOuter(known)
            | JoinOperator::FullOuter(known)
            | JoinOperator::CrossJoin(known)
            | JoinOperator::StraightJoin(known) => *known = constraint,
            _ => return Err(unsupported("this kind of join")),
        }
        self.join_operator(operator)
    }

    /// The merged column that a name without a table means.
    pub(super) fn merged(&self, name: &str) -> Result<Option<Expr>> {
        for scope in self.scopes.iter().rev().flatten() {
            let mut found = scope.iter().filter(|shown| shown.name == name);
            let Some(first) = found.next() else { continue };
            let others: Vec<&Shown> = found.collect();
            if !others.is_empty() && (first.is_merged || others.iter().any(|shown| shown.is_merged)) {
                return Err(ambiguous(name));
            }
            return Ok(first.is_merged.then(|| first.expr.clone()));
        }
        Ok(None)
    }
}

impl Rewrite<'_> {
    /// Writes out `*` where merged columns stand first.
    pub(super) fn expand_wildcard(&self, projection: &mut Vec<SelectItem>) {
        let Some(Some(scope)) = self.scopes.last() else { return };
        if !scope.iter().any(|shown| shown.is_merged) {
            return;
        }
        let mut expanded = Vec::with_capacity(projection.len() + scope.len());
        for item in projection.drain(..) {
            match item {
                SelectItem::Wildcard(_) => {
                    expanded.extend(scope.iter().map(|shown| SelectItem::UnnamedExpr(shown.expr.clone())));
                }
                other => expanded.push(other),
            }
        }
        *projection = expanded;
    }

    /// Without the columns that an alias of the SELECT list hides: in HAVING and ORDER BY.
    pub(super) fn hide_aliases(scope: &mut Scope, projection: &[SelectItem]) {
        let Some(shown) = scope else { return };
        let is_alias = |name: &str| {
            projection
                .iter()
                .any(|item| matches!(item, SelectItem::ExprWithAlias { alias, .. } if alias.value == name))
        };
        for shown in shown.iter_mut().filter(|shown| is_alias(&shown.name)) {
            shown.is_merged = false;
        }
    }

    /// Rewrites HAVING, in which shared names mean what they mean in the SELECT list.
    pub(super) fn having(&mut self, having: &mut Expr, items: &Items) -> Result<()> {
        let mut shown = Vec::new();
        for (name, meaning) in items.for_having() {
            // An ambiguous name is an error where it is used.
            let exprs = match meaning {
                Ok(expr) => vec![expr],
                Err(_) => vec![Expr::Identifier(quoted(&name)); 2],
            };
            shown.extend(exprs.into_iter().map(|expr| Shown { name: name.clone(), expr, is_merged: true }));
        }
        if shown.is_empty() {
            return self.predicate(having);
        }
        self.scopes.push(Some(shown));
        let rewritten = self.predicate(having);
        self.scopes.pop();
        rewritten
    }

    /// Notes what a name of WITH stands for.
    pub(super) fn push_cte(&mut self, cte: &Cte) {
        let columns = self.cte_columns(cte, &self.ctes).ok();
        self.ctes.push(CteColumns { name: cte.alias.name.value.clone(), columns });
    }

    fn cte_columns(&self, cte: &Cte, ctes: &[CteColumns]) -> Result<Vec<String>> {
        match cte.alias.columns.as_slice() {
            [] => self.query_columns(&cte.query, ctes),
            columns => Ok(columns.iter().map(|column| column.name.value.to_lowercase()).collect()),
        }
    }

    /// The alias of a table in FROM, and its columns.
    pub(super) fn factor_columns(
        &self,
        factor: &TableFactor,
        ctes: &[CteColumns],
    ) -> Result<(String, Vec<String>)> {
        let unknown = || unsupported("USING or NATURAL beside a table whose columns are not known");
        let (alias, columns) = match factor {
            TableFactor::Table { name, alias: Some(alias), .. } => {
                (alias, self.table_columns(name, ctes)?.ok_or_else(unknown)?)
            }
            TableFactor::Derived { subquery, alias: Some(alias), .. } => {
                (alias, self.query_columns(subquery, ctes)?)
            }
            _ => return Err(unknown()),
        };
        let TableAlias { name, columns: renamed, .. } = alias;
        let columns = match renamed.as_slice() {
            [] => columns,
            renamed => renamed.iter().map(|column| column.name.value.clone()).collect(),
        };
        Ok((name.value.clone(), columns))
    }

    fn table_columns(&self, name: &ObjectName, ctes: &[CteColumns]) -> Result<Option<Vec<String>>> {
        match name.0.as_slice() {
            [one] => {
                let name = part(one)?;
                let known = ctes.iter().rev().find(|cte| cte.name == name);
                Ok(known.and_then(|cte| cte.columns.clone()))
            }
            [database, table] => match self.columns_of {
                Some(columns_of) => columns_of(&part(database)?, &part(table)?).map(Some),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// The names of the columns of a query that is rewritten.
    pub(super) fn query_columns(&self, query: &Query, ctes: &[CteColumns]) -> Result<Vec<String>> {
        let mut ctes = ctes.to_vec();
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            let columns = self.cte_columns(cte, &ctes).ok();
            ctes.push(CteColumns { name: cte.alias.name.value.clone(), columns });
        }
        self.body_columns(&query.body, &ctes)
    }

    fn body_columns(&self, body: &SetExpr, ctes: &[CteColumns]) -> Result<Vec<String>> {
        match body {
            SetExpr::Query(query) => self.query_columns(query, ctes),
            SetExpr::SetOperation { left, .. } => self.body_columns(left, ctes),
            SetExpr::Select(select) => {
                let mut columns = Vec::with_capacity(select.projection.len());
                for item in &select.projection {
                    self.item_columns(item, &select.from, ctes, &mut columns)?;
                }
                Ok(columns)
            }
            _ => Err(unsupported("USING or NATURAL beside VALUES")),
        }
    }

    fn item_columns(
        &self,
        item: &SelectItem,
        from: &[TableWithJoins],
        ctes: &[CteColumns],
        columns: &mut Vec<String>,
    ) -> Result<()> {
        match item {
            SelectItem::ExprWithAlias { alias, .. } => columns.push(alias.value.to_lowercase()),
            SelectItem::UnnamedExpr(expr) => columns.push(match strip(expr) {
                Expr::Identifier(name) => name.value.to_lowercase(),
                Expr::CompoundIdentifier(parts) => {
                    parts.last().map(|part| part.value.to_lowercase()).unwrap_or_default()
                }
                other => other.to_string().to_lowercase(),
            }),
            SelectItem::Wildcard(_) => {
                for factor in factors(from) {
                    columns.extend(self.factor_columns(factor, ctes)?.1);
                }
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let wanted = last_part(name)?;
                for factor in factors(from) {
                    let (alias, names) = self.factor_columns(factor, ctes)?;
                    if alias == wanted {
                        columns.extend(names);
                    }
                }
            }
            _ => return Err(unsupported("USING or NATURAL beside this SELECT list")),
        }
        Ok(())
    }
}

/// Tables go by their aliases, or by the last part of their names: each must be another.
fn check_aliases(from: &[TableWithJoins]) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for factor in factors(from) {
        let name = match factor {
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. } => alias.name.value.clone(),
            TableFactor::Table { name, .. } => name
                .0
                .last()
                .and_then(ObjectNamePart::as_ident)
                .map(|ident| ident.value.clone())
                .unwrap_or_default(),
            _ => continue,
        };
        if !seen.insert(name.to_lowercase()) {
            return Err(Error::mysql(1066, format!("Not unique table/alias: '{name}'")));
        }
    }
    Ok(())
}

/// The tables of a FROM, in order.
pub(super) fn factors(from: &[TableWithJoins]) -> Vec<&TableFactor> {
    let mut all = Vec::new();
    for table in from {
        for factor in std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation)) {
            match factor {
                TableFactor::NestedJoin { table_with_joins, .. } => {
                    all.extend(factors(std::slice::from_ref(table_with_joins)));
                }
                other => all.push(other),
            }
        }
    }
    all
}

/// The names that both sides show, in the order of the left one.
fn common(left: &[Shown], right: &[Shown]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for shown in left {
        if right.iter().any(|other| other.name == shown.name) && !names.contains(&shown.name) {
            names.push(shown.name.clone());
        }
    }
    names
}

/// The one column of a name.
fn only(side: &[Shown], name: &str) -> Result<Expr> {
    let mut found = side.iter().filter(|shown| shown.name == name);
    match (found.next(), found.next()) {
        (Some(shown), None) => Ok(shown.expr.clone()),
        (None, _) => Err(Error::mysql(1054, format!("Unknown column '{name}' in 'from clause'"))),
        (Some(_), Some(_)) => Err(ambiguous(name)),
    }
}

fn ambiguous(name: &str) -> Error {
    Error::mysql(1052, format!("Column '{name}' is ambiguous"))
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn last_part(name: &ObjectName) -> Result<String> {
    name.0.last().map_or_else(|| Err(unsupported("an empty name")), part)
}

fn part(part: &ObjectNamePart) -> Result<String> {
    let ident: Option<&Ident> = part.as_ident();
    ident.map(|ident| ident.value.to_lowercase()).ok_or_else(|| unsupported(&format!("the name {part}")))
}
