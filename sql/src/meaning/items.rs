//! The items of a SELECT list: their names, and what a name means that several of them share.
//!
//! MySQL lets columns of an answer share a name, the batch engine does not: there the later ones are called
//! differently inside. What ORDER BY and HAVING mean by the name is decided here, as MySQL does it: of the
//! items in order the first that is an expression; columns of tables count only if they are one and the same.
//! A table in FROM and a view have each name once (1060).

use std::collections::BTreeSet;

use sqlparser::ast::{
    Expr, Ident, ObjectNamePart, OrderBy, OrderByKind, Select, SelectItem, SelectItemQualifiedWildcardKind,
    SetExpr, TableWithJoins,
};
use types::{Error, Result};

use super::using::{Scope, factors};
use super::{Rewrite, quoted, strip};

/// Who names the columns of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    /// The query around it, by their names.
    #[default]
    Named,
    /// Whoever reads the answer of the outermost query.
    Outermost,
    /// Nobody: the first SELECT of a set operation does, or a list of names, or they are not read (EXISTS).
    Unnamed,
}

/// The name of an item of the outermost SELECT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ItemName {
    /// As the alias or the expression is written.
    Named(String),
    /// `*` or `t.*`: as the columns are declared.
    Wildcard,
}

/// A column of a table in FROM: the table's alias, if it is known, and the name.
type Key = (Option<String>, String);

/// One column of the answer.
#[derive(Clone, Debug)]
struct Candidate {
    name: String,
    /// The column of a table that it is, if it is one.
    key: Option<Key>,
    /// How it is called inside, if not by its name.
    called: Option<Expr>,
}

/// The columns of a SELECT of which some share a name.
#[derive(Clone, Debug, Default)]
pub(super) struct Items {
    candidates: Vec<Candidate>,
}

impl Items {
    /// What a name stands for, if it needs another name inside.
    fn meaning(&self, name: &str, clause: &str) -> Result<Option<Expr>> {
        let mut found: Option<&Candidate> = None;
        for candidate in self.candidates.iter().filter(|candidate| candidate.name == name) {
            let Some(key) = &candidate.key else {
                found = Some(candidate);
                break;
            };
            match found {
                None => found = Some(candidate),
                Some(first) if first.key.as_ref() == Some(key) => {}
                Some(_) => {
                    return Err(Error::mysql(1052, format!("Column '{name}' in {clause} is ambiguous")));
                }
            }
        }
        Ok(found.and_then(|candidate| candidate.called.clone()))
    }

    /// Replaces names in ORDER BY that need others inside.
    pub(super) fn order_by(&self, order_by: &mut OrderBy) -> Result<()> {
        let OrderByKind::Expressions(exprs) = &mut order_by.kind else { return Ok(()) };
        for order in exprs {
            self.replace(&mut order.expr, "order clause")?;
        }
        Ok(())
    }

    /// GROUP BY means columns of tables first, which are called by their names: what is left is ambiguity.
    pub(super) fn group_by(&self, exprs: &[Expr]) -> Result<()> {
        exprs.iter().try_for_each(|expr| self.replace(&mut expr.clone(), "group statement"))
    }

    fn replace(&self, expr: &mut Expr, clause: &str) -> Result<()> {
        let Expr::Identifier(ident) = strip(expr) else { return Ok(()) };
        if let Some(called) = self.meaning(&ident.value.to_lowercase(), clause)? {
            *expr = called;
        }
        Ok(())
    }

    /// What names mean in HAVING, as a scope before that of FROM: name, meaning.
    pub(super) fn for_having(&self) -> Vec<(String, Result<Expr>)> {
        let names: BTreeSet<&str> = self.candidates.iter().map(|candidate| candidate.name.as_str()).collect();
        let meaning = |name: &str| self.meaning(name, "having clause").transpose();
        names.into_iter().filter_map(|name| Some((name.to_owned(), meaning(name)?))).collect()
    }
}

/// A name that is there twice.
pub(super) fn check_unique(names: &[String]) -> Result<()> {
    let mut seen = BTreeSet::new();
    match names.iter().find(|name| !seen.insert(name.to_lowercase())) {
        Some(name) => Err(Error::mysql(1060, format!("Duplicate column name '{name}'"))),
        None => Ok(()),
    }
}

impl Rewrite<'_> {
    /// Gives the items of a SELECT names of their own; its FROM is rewritten already. The answer knows what
    /// shared names mean.
    pub(super) fn unique_items(&mut self, select: &mut Select, role: Role, scope: &Scope) -> Result<Items> {
        if role == Role::Named {
            return Ok(Items::default());
        }
        let n_wildcards =
            select.projection.iter().filter(|item| item_name(item) == ItemName::Wildcard).count();
        if !needs_names(&select.projection, n_wildcards) {
            return Ok(Items::default());
        }
        let tables = FromColumns::new(self, &select.from);
        let mut items = Items::default();
        let mut names = Vec::with_capacity(select.projection.len());
        let mut projection = Vec::with_capacity(select.projection.len());
        let wildcards = tables.of_wildcards(&select.projection, scope);
        let all_known = wildcards.iter().all(Option::is_some);
        let shown: BTreeSet<String> =
            wildcards.iter().flatten().flatten().map(|(name, _)| name.clone()).collect();
        let mut wildcards = wildcards.into_iter();
        let mut seen: BTreeSet<String> = BTreeSet::new();
        let mut seen_keys: BTreeSet<Key> = BTreeSet::new();
        for (index, item) in select.projection.drain(..).enumerate() {
            let ItemName::Named(name) = item_name(&item) else {
                let columns = wildcards.next().flatten().unwrap_or_default();
                let is_new = columns.iter().all(|(_, key)| seen_keys.insert(key.clone()));
                self.wildcard(
                    item,
                    &columns,
                    is_new,
                    index,
                    &mut Building { items: &mut items, names: &mut names, projection: &mut projection },
                );
                continue;
            };
            let lower = name.to_lowercase();
            names.push(ItemName::Named(name));
            let is_new = seen.insert(lower.clone());
            let (expr, alias) = match item {
                SelectItem::UnnamedExpr(expr) => (expr, None),
                SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias)),
                other => {
                    projection.push(other);
                    continue;
                }
            };
            let collides = !is_new || shown.contains(&lower) || !all_known;
            let renamed = collides || (alias.is_none() && n_wildcards > 0);
            let inside = renamed.then(|| quoted(&format!("{lower}#{index}")));
            items.candidates.push(Candidate {
                name: lower,
                key: tables.key(&expr),
                called: inside.clone().map(Expr::Identifier),
            });
            projection.push(match inside.or(alias) {
                Some(alias) => SelectItem::ExprWithAlias { expr, alias },
                None => SelectItem::UnnamedExpr(expr),
            });
        }
        select.projection = projection;
        if role == Role::Outermost {
            self.names = names;
        }
        Ok(items)
    }

    /// Takes in a wildcard: as it is, or column by column if some of its columns were shown before.
    fn wildcard(
        &self,
        item: SelectItem,
        columns: &[(String, Key)],
        is_new: bool,
        index: usize,
        building: &mut Building<'_>,
    ) {
        if is_new {
            building.names.push(ItemName::Wildcard);
            building.projection.push(item);
        }
        for (at, (name, key)) in columns.iter().enumerate() {
            building.items.candidates.push(Candidate {
                name: name.clone(),
                key: Some(key.clone()),
                called: None,
            });
            if !is_new {
                building.names.push(ItemName::Named(name.clone()));
                let parts = key.0.iter().chain([&key.1]).map(|part| quoted(part)).collect();
                let expr = Expr::CompoundIdentifier(parts);
                let alias = quoted(&format!("{name}#{index}#{at}"));
                building.projection.push(SelectItem::ExprWithAlias { expr, alias });
            }
        }
    }
}

/// What a SELECT list becomes.
struct Building<'a> {
    items: &'a mut Items,
    names: &'a mut Vec<ItemName>,
    projection: &'a mut Vec<SelectItem>,
}

/// Whether columns of the list may share a name.
fn needs_names(projection: &[SelectItem], n_wildcards: usize) -> bool {
    let mut seen = BTreeSet::new();
    let is_repeated = |item: &SelectItem| match item_name(item) {
        ItemName::Named(name) => !seen.insert(name.to_lowercase()),
        ItemName::Wildcard => false,
    };
    projection.iter().any(is_repeated) || (n_wildcards > 0 && projection.len() > 1)
}

/// The tables of a FROM by alias, with their columns where they are known.
pub(super) struct FromColumns {
    tables: Vec<(String, Option<Vec<String>>)>,
}

impl FromColumns {
    pub(super) fn new(rewrite: &Rewrite<'_>, from: &[TableWithJoins]) -> FromColumns {
        // A table that is not there is missed by the planner.
        let table = |factor| {
            let found = rewrite.factor_columns(factor, &rewrite.ctes).ok();
            found.map_or_else(|| (String::new(), None), |(alias, columns)| (alias, Some(columns)))
        };
        FromColumns { tables: factors(from).into_iter().map(table).collect() }
    }

    /// Whether a table has a column of a name, or may have one.
    pub(super) fn may_have(&self, name: &str) -> bool {
        let has_it = |columns: &Vec<String>| columns.iter().any(|column| column == name);
        self.tables.iter().any(|(_, columns)| columns.as_ref().is_none_or(has_it))
    }

    /// The columns of each wildcard of the list; None where they are not known.
    fn of_wildcards(&self, projection: &[SelectItem], scope: &Scope) -> Vec<Option<Vec<(String, Key)>>> {
        let wildcards = projection.iter().filter_map(|item| match item {
            SelectItem::Wildcard(_) => Some(match scope {
                Some(shown) if shown.iter().any(super::using::Shown::is_merged) => Some(
                    shown.iter().map(|shown| (shown.name().to_owned(), self.key_of(shown.expr()))).collect(),
                ),
                _ => self.of_table(None),
            }),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let last = name.0.last().and_then(ObjectNamePart::as_ident);
                Some(last.and_then(|ident| self.of_table(Some(&ident.value.to_lowercase()))))
            }
            _ => None,
        });
        wildcards.collect()
    }

    /// The columns of a table, or of all of them.
    fn of_table(&self, wanted: Option<&str>) -> Option<Vec<(String, Key)>> {
        let mut all = Vec::new();
        for (alias, columns) in
            self.tables.iter().filter(|(alias, _)| wanted.is_none_or(|wanted| wanted == alias))
        {
            let key = |name: &String| (name.clone(), (Some(alias.clone()), name.clone()));
            all.extend(columns.as_ref()?.iter().map(key));
        }
        Some(all)
    }

    fn key_of(&self, expr: &Expr) -> Key {
        self.key(expr).unwrap_or_default()
    }

    /// The column of a table that an expression is.
    fn key(&self, expr: &Expr) -> Option<Key> {
        match strip(expr) {
            Expr::Identifier(ident) if !ident.value.starts_with('@') => {
                let name = ident.value.to_lowercase();
                let has_it = |(_, columns): &&(String, Option<Vec<String>>)| {
                    self.tables.len() == 1 || columns.as_ref().is_some_and(|columns| columns.contains(&name))
                };
                let table = self.tables.iter().find(has_it).map(|(alias, _)| alias.clone());
                Some((table, name))
            }
            Expr::CompoundIdentifier(parts) if !parts[0].value.starts_with('@') => {
                let lower = |ident: Option<&Ident>| ident.map(|ident| ident.value.to_lowercase());
                let (table, name) = (lower(parts.iter().rev().nth(1)), lower(parts.last()));
                Some((table, name.unwrap_or_default()))
            }
            _ => None,
        }
    }
}

/// The names of a body's columns, wildcards as such.
pub(super) fn item_names(body: &SetExpr) -> Vec<ItemName> {
    match body {
        SetExpr::Select(select) => select.projection.iter().map(item_name).collect(),
        SetExpr::Query(query) => item_names(&query.body),
        SetExpr::SetOperation { left, .. } => item_names(left),
        _ => vec![ItemName::Wildcard],
    }
}

fn item_name(item: &SelectItem) -> ItemName {
    match item {
        SelectItem::UnnamedExpr(expr) => match strip(expr) {
            Expr::Identifier(ident) => ItemName::Named(ident.value.clone()),
            Expr::CompoundIdentifier(parts) if !parts[0].value.starts_with('@') => {
                ItemName::Named(parts.last().map(|part| part.value.clone()).unwrap_or_default())
            }
            other => ItemName::Named(display_name(other)),
        },
        SelectItem::ExprWithAlias { alias, .. } => ItemName::Named(alias.value.clone()),
        _ => ItemName::Wildcard,
    }
}

/// How an expression without an alias is named.
pub(super) fn display_name(expr: &Expr) -> String {
    let name = match expr {
        Expr::Value(value) => match &value.value {
            sqlparser::ast::Value::SingleQuotedString(text)
            | sqlparser::ast::Value::DoubleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        other => other.to_string(),
    };
    name.chars().take(256).collect()
}
