//! MySQL's meaning, first half: on the syntax tree, before types are known.
//!
//! Every expression stands either where a value or where a condition is wanted; the rewrite makes the
//! difference explicit (conditions of other than boolean form get `$truth`, conditions used as values
//! become 0, 1 or NULL), spells MySQL's constructs as calls of our functions (names begin with `$`),
//! brings names to lower case, qualifies tables, and replaces variables by their values. What depends on
//! types is decided when those calls are lowered (`lower`).

mod expr;
mod function;
mod having;
mod items;
mod using;

use std::collections::BTreeSet;

use sqlparser::ast::{
    Cte, Expr, GroupByExpr, Ident, JoinConstraint, JoinOperator, LimitClause, ObjectName, ObjectNamePart,
    OrderBy, OrderByKind, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, SetOperator,
    SetQuantifier, TableAlias, TableFactor, TableWithJoins, Value,
};
use types::{Error, Result};

use self::function::{integer, is_aggregate};
pub(crate) use self::items::ItemName;
use self::items::{Items, Role, check_unique, display_name, item_names};
pub(crate) use self::using::constraint;
use self::using::{ColumnsOf, CteColumns, Scope};
use crate::Settings;
use crate::parse::{Source, unsupported};
use sqlparser::tokenizer::Location;

/// Rewrites a query in place; what it collects on the way is in the fields.
pub(crate) struct Rewrite<'a> {
    pub(crate) settings: &'a Settings,
    /// Whether the query defines a view: what is not a function of the tables alone is refused.
    pub(crate) for_view: bool,
    /// The columns of tables, for USING, NATURAL and `*` over them.
    columns_of: Option<ColumnsOf<'a>>,
    /// Names of WITH in scope, in lower case.
    ctes: Vec<CteColumns>,
    /// What names without a table may mean, from the outermost query to this one.
    scopes: Vec<Scope>,
    /// Tables named, as (database, name) in lower case.
    pub(crate) tables: BTreeSet<(String, String)>,
    /// Where names stand that have no database written, and the database they mean.
    unqualified: Vec<(Location, String)>,
    /// Who names the columns of the query that comes next.
    role: Role,
    /// What names mean that columns of the SELECT just rewritten share.
    items: Items,
    /// The names of the outermost query's columns.
    names: Vec<ItemName>,
    /// How many subqueries of expressions are around what is being rewritten.
    n_around: usize,
}

/// How deep subqueries of expressions may be nested: the engine's analysis visits each of them twice as
/// often as the one around it.
const SUBQUERIES_MAX: usize = 10;

impl<'a> Rewrite<'a> {
    pub(crate) fn new(settings: &'a Settings, for_view: bool) -> Rewrite<'a> {
        Rewrite {
            settings,
            for_view,
            columns_of: None,
            ctes: Vec::new(),
            scopes: Vec::new(),
            tables: BTreeSet::new(),
            unqualified: Vec::new(),
            role: Role::default(),
            items: Items::default(),
            names: Vec::new(),
            n_around: 0,
        }
    }

    /// The same, with the columns of tables by database and name.
    pub(crate) fn with_columns(self, columns_of: ColumnsOf<'a>) -> Rewrite<'a> {
        Rewrite { columns_of: Some(columns_of), ..self }
    }

    /// Rewrites the outermost query and returns the names of its columns.
    pub(crate) fn outermost(&mut self, query: &mut Query) -> Result<Vec<ItemName>> {
        self.names = item_names(&query.body);
        self.query_of(query, Role::Outermost)?;
        Ok(std::mem::take(&mut self.names))
    }

    /// Rewrites a query whose columns are named by whom the role says.
    fn query_of(&mut self, query: &mut Query, role: Role) -> Result<()> {
        self.role = role;
        self.query(query)
    }

    /// The text that was parsed, with the database written before every table's name.
    pub(crate) fn qualified(&self, text: &str) -> String {
        let source = Source::new(text);
        let mut places: Vec<(usize, &str)> = self
            .unqualified
            .iter()
            .map(|(location, database)| (source.offset(*location), database.as_str()))
            .collect();
        places.sort_unstable();
        // An item whose name HAVING means is rewritten twice.
        places.dedup();
        let mut qualified = String::with_capacity(text.len());
        let mut copied = 0;
        for (at, database) in places {
            qualified.push_str(&text[copied..at]);
            qualified.push_str(&format!("`{}`.", database.replace('`', "``")));
            copied = at;
        }
        qualified.push_str(&text[copied..]);
        qualified
    }

    pub(crate) fn query(&mut self, query: &mut Query) -> Result<()> {
        if query.fetch.is_some() || query.for_clause.is_some() || !query.pipe_operators.is_empty() {
            return Err(unsupported("FETCH, FOR XML or pipes"));
        }
        // Transactions conflict on what they write: a read that pretends to lock would be a lost update.
        if !query.locks.is_empty() {
            return Err(unsupported(
                "SELECT ... FOR UPDATE or FOR SHARE: transactions conflict on the rows that they write, so \
                 UPDATE the row that is to be guarded",
            ));
        }
        let role = std::mem::take(&mut self.role);
        let n_ctes = self.ctes.len();
        if let Some(with) = &mut query.with {
            if with.recursive && self.for_view {
                return Err(unsupported("WITH RECURSIVE in a view"));
            }
            let recursive = with.recursive;
            for cte in &mut with.cte_tables {
                self.cte(cte, recursive)?;
            }
        }
        self.role = role;
        let scope = self.set_expr(&mut query.body)?;
        let items = std::mem::take(&mut self.items);
        if let Some(order_by) = &mut query.order_by {
            items.order_by(order_by)?;
            self.scopes.push(scope);
            self.order_by(order_by)?;
            self.scopes.pop();
        }
        self.limit(query)?;
        self.ctes.truncate(n_ctes);
        Ok(())
    }

    /// Rewrites the query of EXISTS, IN or a scalar subquery.
    fn subquery(&mut self, query: &mut Query, role: Role) -> Result<()> {
        if self.n_around == SUBQUERIES_MAX {
            let text = format!("Too high level of nesting for select: at most {SUBQUERIES_MAX} subqueries");
            return Err(Error::mysql(1473, text));
        }
        self.n_around += 1;
        let rewritten = self.query_of(query, role);
        self.n_around -= 1;
        rewritten
    }

    fn cte(&mut self, cte: &mut Cte, recursive: bool) -> Result<()> {
        lower_alias(&mut cte.alias);
        if recursive {
            self.push_cte(cte);
        }
        self.table_query(&mut cte.query, &cte.alias)?;
        if !recursive {
            self.push_cte(cte);
        }
        Ok(())
    }

    /// Rewrites a query that sees nothing of those around it.
    fn apart(&mut self, query: &mut Query) -> Result<()> {
        let scopes = std::mem::take(&mut self.scopes);
        let rewritten = self.query(query);
        self.scopes = scopes;
        rewritten
    }

    /// Rewrites a query that is a table of another: each of its columns has a name of its own.
    fn table_query(&mut self, query: &mut Query, alias: &TableAlias) -> Result<()> {
        let listed: Vec<String> = alias.columns.iter().map(|column| column.name.value.clone()).collect();
        if listed.is_empty() {
            self.apart(query)?;
            // Columns that are not known are the planner's to check.
            return self.query_columns(query, &self.ctes).map_or(Ok(()), |names| check_unique(&names));
        }
        self.role = Role::Unnamed;
        self.apart(query)?;
        check_unique(&listed)
    }

    /// Rewrites a body; what ORDER BY may name is left of a SELECT.
    fn set_expr(&mut self, body: &mut SetExpr) -> Result<Scope> {
        match body {
            SetExpr::Select(select) => return self.select(select),
            SetExpr::Query(query) => self.query(query),
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                let all = matches!(set_quantifier, SetQuantifier::All | SetQuantifier::AllByName);
                if all && matches!(op, SetOperator::Intersect | SetOperator::Except | SetOperator::Minus) {
                    // The batch engine would answer with a semi or anti join, which is another thing.
                    return Err(unsupported(&format!("{op} ALL")));
                }
                self.set_expr(left)?;
                let items = std::mem::take(&mut self.items);
                self.role = Role::Unnamed;
                self.set_expr(right)?;
                self.items = items;
                Ok(())
            }
            SetExpr::Values(values) => {
                for row in &mut values.rows {
                    for expr in &mut row.content {
                        self.value(expr)?;
                    }
                }
                Ok(())
            }
            SetExpr::Table(_) if self.for_view => Err(unsupported("TABLE in a view")),
            SetExpr::Table(table) => {
                let name = table.table_name.clone().unwrap_or_default();
                let database = table.schema_name.clone();
                let mut parts: Vec<Ident> = database.into_iter().map(Ident::new).collect();
                parts.push(Ident::new(name));
                let select = table_select(ObjectName::from(parts));
                *body = SetExpr::Select(Box::new(select?));
                return self.set_expr(body);
            }
            _ => Err(unsupported("data changes inside a query")),
        }
        .map(|()| None)
    }

    fn select(&mut self, select: &mut Select) -> Result<Scope> {
        let role = std::mem::take(&mut self.role);
        refuse_select_clauses(select)?;
        let scope = self.from(&mut select.from)?;
        let items = self.unique_items(select, role, &scope)?;
        self.scopes.push(scope);
        self.expand_wildcard(&mut select.projection);
        let rewritten = self.clauses(select, &items);
        let scope = self.scopes.pop().flatten();
        self.items = items;
        rewritten.map(|()| scope)
    }

    fn clauses(&mut self, select: &mut Select, items: &Items) -> Result<()> {
        if let Some(selection) = &mut select.selection {
            self.predicate(selection)?;
        }
        let of_having = self.items_of_having(select);
        for item in &mut select.projection {
            self.select_item(item)?;
        }
        if let GroupByExpr::Expressions(exprs, _) = &select.group_by {
            items.group_by(exprs)?;
            check_groups(exprs, &select.projection)?;
        }
        self.group_by(&mut select.group_by)?;
        if let Some(scope) = self.scopes.last_mut() {
            Self::hide_aliases(scope, &select.projection);
        }
        if let Some(having) = &mut select.having {
            having::put_items(having, &of_having);
            self.having(having, items)?;
        }
        for window in &mut select.named_window {
            window.0.value = window.0.value.to_lowercase();
            if let sqlparser::ast::NamedWindowExpr::WindowSpec(spec) = &mut window.1 {
                self.window_spec(spec)?;
            }
        }
        Ok(())
    }

    fn select_item(&mut self, item: &mut SelectItem) -> Result<()> {
        match item {
            SelectItem::UnnamedExpr(expr) => {
                let name = match strip(expr) {
                    Expr::Identifier(ident) if !ident.value.starts_with('@') => None,
                    Expr::CompoundIdentifier(parts) if !parts[0].value.starts_with('@') => None,
                    other => Some(display_name(other).to_lowercase()),
                };
                self.value(expr)?;
                if let Some(name) = name {
                    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: quoted(&name) };
                }
                Ok(())
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                *alias = quoted(&alias.value.to_lowercase());
                self.value(expr)
            }
            SelectItem::QualifiedWildcard(kind, _) => {
                if let SelectItemQualifiedWildcardKind::ObjectName(name) = kind {
                    // Tables always have an alias: the last part.
                    let last = name.0.last().and_then(ObjectNamePart::as_ident).cloned();
                    let last = last.ok_or_else(|| unsupported("this wildcard"))?;
                    *name = ObjectName::from(vec![quoted(&last.value.to_lowercase())]);
                }
                Ok(())
            }
            SelectItem::Wildcard(_) => Ok(()),
            SelectItem::ExprWithAliases { .. } => Err(unsupported("several aliases for one expression")),
        }
    }

    fn group_by(&mut self, group_by: &mut GroupByExpr) -> Result<()> {
        let GroupByExpr::Expressions(exprs, modifiers) = group_by else {
            return Err(unsupported("GROUP BY ALL"));
        };
        for expr in exprs.iter_mut() {
            self.value(expr)?;
        }
        match modifiers.as_slice() {
            [] => Ok(()),
            [modifier, ..] => Err(unsupported(&format!("GROUP BY ... {modifier}"))),
        }
    }

    pub(crate) fn order_by(&mut self, order_by: &mut OrderBy) -> Result<()> {
        let OrderByKind::Expressions(exprs) = &mut order_by.kind else {
            return Err(unsupported("ORDER BY ALL"));
        };
        for expr in exprs {
            self.value(&mut expr.expr)?;
        }
        Ok(())
    }

    fn limit(&mut self, query: &mut Query) -> Result<()> {
        match &mut query.limit_clause {
            None => Ok(()),
            Some(LimitClause::LimitOffset { limit, offset, .. }) => {
                if let Some(limit) = limit {
                    self.bound(limit)?;
                }
                if let Some(offset) = offset {
                    self.bound(&mut offset.value)?;
                }
                Ok(())
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => {
                self.bound(offset)?;
                self.bound(limit)
            }
        }
    }

    /// A number of LIMIT.
    fn bound(&mut self, expr: &mut Expr) -> Result<()> {
        match strip(expr) {
            Expr::Identifier(ident) if !ident.value.starts_with('@') => {
                Err(Error::mysql(1327, format!("Undeclared variable: {}", ident.value)))
            }
            // More rows than there can be: all.
            Expr::Value(value)
                if matches!(&value.value, Value::Number(digits, _)
                    if digits.parse::<u64>().is_ok_and(|number| i64::try_from(number).is_err())) =>
            {
                *expr = integer(i64::MAX);
                Ok(())
            }
            _ => self.value(expr),
        }
    }

    fn join_operator(&mut self, operator: &mut JoinOperator) -> Result<()> {
        if let JoinOperator::StraightJoin(constraint) = operator {
            *operator = JoinOperator::Inner(constraint.clone());
        }
        // MySQL's CROSS JOIN may have a condition, and JOIN may have none.
        match operator {
            JoinOperator::CrossJoin(constraint) if !matches!(constraint, JoinConstraint::None) => {
                *operator = JoinOperator::Inner(constraint.clone());
            }
            JoinOperator::Join(JoinConstraint::None) | JoinOperator::Inner(JoinConstraint::None) => {
                *operator = JoinOperator::CrossJoin(JoinConstraint::None);
            }
            _ => {}
        }
        match operator {
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)
            | JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint)
            | JoinOperator::CrossJoin(constraint) => self.join_constraint(constraint),
            _ => Err(unsupported("this kind of join")),
        }
    }

    fn join_constraint(&mut self, constraint: &mut JoinConstraint) -> Result<()> {
        match constraint {
            JoinConstraint::On(expr) => self.predicate(expr),
            JoinConstraint::None => Ok(()),
            JoinConstraint::Using(_) | JoinConstraint::Natural => Err(unsupported("this kind of join")),
        }
    }

    fn table_factor(&mut self, factor: &mut TableFactor) -> Result<()> {
        match factor {
            TableFactor::Table { sample: Some(_), .. } | TableFactor::Derived { sample: Some(_), .. } => {
                Err(unsupported("TABLESAMPLE"))
            }
            TableFactor::Table { name, alias, args, version, index_hints, partitions, .. } => {
                if args.is_some() || version.is_some() || !partitions.is_empty() {
                    return Err(unsupported(&format!(
                        "table {name} with arguments, a version or partitions"
                    )));
                }
                index_hints.clear();
                self.table(name, alias)
            }
            TableFactor::Derived { subquery, alias, lateral, .. } => {
                if *lateral && self.for_view {
                    return Err(unsupported("LATERAL in a view"));
                }
                match alias {
                    Some(alias) => lower_alias(alias),
                    None => return Err(Error::mysql(1248, "every derived table must have its own alias")),
                }
                match alias {
                    Some(alias) if !*lateral => self.table_query(subquery, alias),
                    _ => self.query(subquery),
                }
            }
            other => Err(unsupported(&format!("{other} in FROM"))),
        }
    }

    /// Qualifies a table's name and makes sure that it has an alias: columns name the alias.
    fn table(&mut self, name: &mut ObjectName, alias: &mut Option<TableAlias>) -> Result<()> {
        let table =
            crate::parse::to_table_name(name).map_err(|error| Error::mysql(1064, error.to_string()))?;
        let lower = table.name.to_lowercase();
        match alias {
            Some(alias) => lower_alias(alias),
            None => *alias = Some(table_alias(&lower)),
        }
        if table.database.is_none() && self.ctes.iter().any(|cte| cte.name == lower) {
            *name = ObjectName::from(vec![quoted(&lower)]);
            return Ok(());
        }
        if table.database.is_none() && lower == "dual" {
            return Err(unsupported("FROM DUAL beside other tables"));
        }
        let is_qualified = table.database.is_some();
        let database = table.database.or_else(|| self.settings.database.clone());
        let database = database.ok_or_else(|| Error::mysql(1046, "no database selected"))?.to_lowercase();
        if !is_qualified && let Some(ident) = name.0.first().and_then(ObjectNamePart::as_ident) {
            self.unqualified.push((ident.span.start, database.clone()));
        }
        *name = ObjectName::from(vec![quoted(&database), quoted(&lower)]);
        self.tables.insert((database, lower));
        Ok(())
    }
}

/// Nothing is grouped by what groups make.
fn check_groups(exprs: &[Expr], projection: &[SelectItem]) -> Result<()> {
    for expr in exprs {
        if has_aggregate(expr) {
            return Err(Error::mysql(1111, "Invalid use of group function"));
        }
        let Expr::Value(value) = strip(expr) else { continue };
        let Value::Number(number, _) = &value.value else { continue };
        let position = number.to_string().parse::<usize>().ok().and_then(|position| position.checked_sub(1));
        let item = position.and_then(|at| projection.get(at));
        if let Some(SelectItem::ExprWithAlias { expr, alias }) = item
            && has_aggregate(expr)
        {
            return Err(Error::mysql(1056, format!("Can't group on '{}'", alias.value)));
        }
    }
    Ok(())
}

/// Whether an expression, rewritten or not, calls an aggregate function.
fn has_aggregate(expr: &Expr) -> bool {
    let found = sqlparser::ast::visit_expressions(expr, |part| match part {
        Expr::Function(function) if function.over.is_none() => {
            let name = function.name.to_string().trim_matches('`').to_lowercase();
            match is_aggregate(&name) {
                true => std::ops::ControlFlow::Break(()),
                false => std::ops::ControlFlow::Continue(()),
            }
        }
        _ => std::ops::ControlFlow::Continue(()),
    });
    found.is_break()
}

fn refuse_select_clauses(select: &mut Select) -> Result<()> {
    if matches!(select.from.as_slice(), [table] if is_dual(table)) {
        select.from.clear();
    }
    // SQL_NO_CACHE, STRAIGHT_JOIN and others only advise; SQL_CALC_FOUND_ROWS would not.
    if select.select_modifiers.as_ref().is_some_and(|modifiers| modifiers.sql_calc_found_rows) {
        return Err(unsupported("SQL_CALC_FOUND_ROWS"));
    }
    select.select_modifiers = None;
    select.optimizer_hints.clear();
    if select.into.is_some() {
        return Err(unsupported("SELECT ... INTO"));
    }
    if matches!(select.distinct, Some(sqlparser::ast::Distinct::On(_))) {
        return Err(unsupported("DISTINCT ON"));
    }
    if select.qualify.is_some() {
        return Err(unsupported("QUALIFY"));
    }
    Ok(())
}

fn is_dual(table: &TableWithJoins) -> bool {
    let TableFactor::Table { name, alias: None, .. } = &table.relation else { return false };
    table.joins.is_empty() && name.0.len() == 1 && name.to_string().eq_ignore_ascii_case("dual")
}

fn table_select(name: ObjectName) -> Result<Select> {
    let query = crate::parse::parse_query(&format!("SELECT * FROM {name}"))?;
    match *query.body {
        SetExpr::Select(select) => Ok(*select),
        _ => Err(unsupported("TABLE")),
    }
}

fn table_alias(name: &str) -> TableAlias {
    TableAlias { explicit: true, name: quoted(name), columns: Vec::new(), at: None }
}

fn lower_alias(alias: &mut TableAlias) {
    alias.name = quoted(&alias.name.value.to_lowercase());
    for column in &mut alias.columns {
        column.name = quoted(&column.name.value.to_lowercase());
    }
}

/// A quoted identifier: its case stays as it is.
pub(crate) fn quoted(name: &str) -> Ident {
    Ident::with_quote('`', name)
}

/// The expression without parentheses around it.
pub(crate) fn strip(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => strip(inner),
        other => other,
    }
}
