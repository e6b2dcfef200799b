//! SQL: dialect, catalog, meaning, and from a query to a dataflow.
//!
//! Own statements are parsed before sqlparser sees them; a logical plan is given MySQL's meaning by one
//! set of rewrites that views and ad-hoc queries share; a view's plan becomes a plan of operators or is
//! refused with the construct's name. DataFusion is named only here and in `query`.

pub mod catalog;
