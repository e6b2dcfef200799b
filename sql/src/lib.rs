//! SQL: dialect, catalog, meaning, and from a query to a dataflow.
//!
//! Own statements are parsed before sqlparser sees them; a logical plan is given MySQL's meaning by one
//! set of rewrites that views and ad-hoc queries share; a view's plan becomes a plan of operators or is
//! refused with the construct's name. DataFusion is named only here and in `query`.

mod aggregates;
pub mod catalog;
mod class;
mod clause;
mod error;
mod expression;
mod functions;
mod lower;
mod meaning;
mod parse;
mod plan;
mod settings;
pub mod stack;
mod statement;
mod values;
mod view;

pub use error::from_datafusion;
pub use expression::PhysicalExpression;
pub use parse::{bind, bind_nulls, parse, parse_expression};
pub use plan::{
    OutputColumn, PlannedQuery, Resolver, is_refused, plan_expressions, plan_query, refused_fields,
    session_state,
};
pub use settings::{DEFAULT_SQL_MODE, DivisionByZero, Literal, Settings};
pub use sqlparser::ast;
pub use statement::{
    AlterView, ColumnDefinition, CreateMaterializedView, CreateTable, ParsedStatement, QueryStatement,
    RefreshKind, RefreshMaterializedView, SetItem, SetScope, SetValue, Show, Statement, TableName,
};
pub use view::{ViewPlan, check_view_types, plan_stored_view, plan_view, used_columns};
