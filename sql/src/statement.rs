//! Statements, as the server dispatches them.
//!
//! What only needs planning keeps sqlparser's tree inside; everything that the catalog or the session
//! acts on is spelled out here.

use std::collections::BTreeMap;
use std::fmt;

use sqlparser::ast;
use tidb::ColumnType;

use crate::Literal;

/// A name, with its database if one was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableName {
    /// The database before the dot.
    pub database: Option<String>,
    /// The name as written.
    pub name: String,
}

impl fmt::Display for TableName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.database {
            Some(database) => write!(formatter, "{database}.{}", self.name),
            None => formatter.write_str(&self.name),
        }
    }
}

/// A statement with its text.
#[derive(Clone, Debug)]
pub struct ParsedStatement {
    /// What it asks for.
    pub statement: Statement,
    /// Its text, without the semicolon.
    pub text: String,
    /// How many `?` it has.
    pub n_parameters: usize,
}

/// What a statement asks for.
#[allow(clippy::large_enum_variant, reason = "one a statement; SHOW may carry an expression")]
#[derive(Clone, Debug)]
pub enum Statement {
    /// SELECT and everything that is planned like it (WITH, VALUES, TABLE).
    Query(Box<QueryStatement>),
    /// INSERT or REPLACE.
    Insert(Box<ast::Insert>),
    /// UPDATE.
    Update(Box<ast::Update>),
    /// DELETE.
    Delete(Box<ast::Delete>),
    /// TRUNCATE TABLE.
    Truncate(TableName),
    /// CREATE TABLE.
    CreateTable(Box<CreateTable>),
    /// DROP TABLE.
    DropTable {
        /// The tables.
        names: Vec<TableName>,
        /// Unknown ones are fine.
        if_exists: bool,
        /// Views that need them go too.
        cascade: bool,
    },
    /// CREATE DATABASE.
    CreateDatabase {
        /// The name.
        name: String,
        /// An existing one is fine.
        if_not_exists: bool,
    },
    /// DROP DATABASE.
    DropDatabase {
        /// The name.
        name: String,
        /// An unknown one is fine.
        if_exists: bool,
    },
    /// USE.
    Use(String),
    /// SHOW in all its forms, and DESCRIBE.
    Show(Show),
    /// BEGIN or START TRANSACTION.
    Begin {
        /// READ ONLY or READ WRITE; `None` as the session has it.
        read_only: Option<bool>,
    },
    /// COMMIT.
    Commit,
    /// ROLLBACK.
    Rollback,
    /// SET.
    Set(Vec<SetItem>),
    /// EXPLAIN of a statement.
    Explain {
        /// Whether it is also run.
        analyze: bool,
        /// What is explained.
        statement: Box<Statement>,
    },
    /// CREATE MATERIALIZED VIEW.
    CreateMaterializedView(Box<CreateMaterializedView>),
    /// DROP MATERIALIZED VIEW.
    DropMaterializedView {
        /// The views.
        names: Vec<TableName>,
        /// Unknown ones are fine.
        if_exists: bool,
        /// Views that need them go too.
        cascade: bool,
    },
    /// ALTER MATERIALIZED VIEW.
    AlterMaterializedView {
        /// The view.
        name: TableName,
        /// What is to change.
        action: AlterView,
    },
    /// REFRESH MATERIALIZED VIEW.
    RefreshMaterializedView(Box<RefreshMaterializedView>),
    /// OPTIMIZE TABLE.
    OptimizeTable {
        /// The tables and views.
        names: Vec<TableName>,
        /// COMPACT: the store rewrites what it keeps.
        compact: bool,
    },
    /// VERIFY MATERIALIZED VIEW.
    VerifyMaterializedView {
        /// The view.
        name: TableName,
    },
    /// KILL.
    Kill {
        /// The connection.
        connection_id: u64,
        /// Only its running statement.
        query_only: bool,
    },
    /// FLUSH, ANALYZE, LOCK and others that succeed without doing anything here.
    Nothing,
}

/// What ALTER MATERIALIZED VIEW changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlterView {
    /// RESUME: goes on with a suspended view, rebuilds a faulted one.
    Resume,
    /// SUSPEND: the view stays at its checkpoint.
    Suspend,
    /// CANCEL: gives up the fill or refresh that runs.
    Cancel,
    /// RENAME TO.
    Rename(TableName),
    /// CLUSTER BY: another order of the stored rows; no columns for NONE.
    ClusterBy(Vec<String>),
    /// RECLUSTER [FINAL].
    Recluster {
        /// FINAL: in one step.
        at_once: bool,
    },
    /// SET (option = value, ...), names in lower case.
    Set(BTreeMap<String, String>),
}

/// REFRESH MATERIALIZED VIEW.
#[derive(Clone, Debug)]
pub struct RefreshMaterializedView {
    /// The view.
    pub name: TableName,
    /// How.
    pub kind: RefreshKind,
    /// The expression of AS OF TIMESTAMP; the newest snapshot without.
    pub as_of: Option<ast::Expr>,
}

/// How a refresh is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefreshKind {
    /// By whatever is cheaper.
    #[default]
    Auto,
    /// FULL: from the tables, into new storage.
    Full,
    /// INCREMENTAL: from what changed.
    Incremental,
}

/// A query and the point in time it reads at.
#[derive(Clone, Debug)]
pub struct QueryStatement {
    /// The query, without AS OF clauses.
    pub query: ast::Query,
    /// The expression of AS OF TIMESTAMP; different ones in a statement are refused.
    pub as_of: Option<ast::Expr>,
}

/// CREATE TABLE.
#[derive(Clone, Debug)]
pub struct CreateTable {
    /// The name.
    pub name: TableName,
    /// An existing one is fine.
    pub if_not_exists: bool,
    /// The columns.
    pub columns: Vec<ColumnDefinition>,
    /// Columns of the primary key, in key order, empty if there is none.
    pub primary_key: Vec<String>,
    /// COMMENT.
    pub comment: String,
    /// What was written and is left out, as it changes no answer: indexes, options of storage.
    pub notes: Vec<String>,
}

/// A column of CREATE TABLE.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnDefinition {
    /// The name.
    pub name: String,
    /// The type.
    pub column_type: ColumnType,
    /// NOT NULL, or part of the primary key.
    pub not_null: bool,
    /// DEFAULT as SQL text.
    pub default: Option<String>,
    /// COMMENT.
    pub comment: String,
}

/// CREATE MATERIALIZED VIEW.
#[derive(Clone, Debug)]
pub struct CreateMaterializedView {
    /// OR REPLACE.
    pub or_replace: bool,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// The name.
    pub name: TableName,
    /// The column list, empty if the query names the columns.
    pub columns: Vec<String>,
    /// CLUSTER BY.
    pub cluster_by: Vec<String>,
    /// WITH options, names in lower case.
    pub options: BTreeMap<String, String>,
    /// The query.
    pub query: ast::Query,
    /// The query as written.
    pub query_text: String,
    /// Where the query begins in the parsed text.
    pub(crate) query_start: usize,
}

/// A SHOW statement. `filter` is LIKE or WHERE.
#[derive(Clone, Debug)]
pub enum Show {
    /// SHOW DATABASES.
    Databases(Option<ast::ShowStatementFilter>),
    /// SHOW [FULL] TABLES.
    Tables {
        /// With a column of types.
        full: bool,
        /// FROM a database.
        database: Option<String>,
        /// The filter.
        filter: Option<ast::ShowStatementFilter>,
    },
    /// SHOW TABLE STATUS.
    TableStatus {
        /// FROM a database.
        database: Option<String>,
        /// The filter.
        filter: Option<ast::ShowStatementFilter>,
    },
    /// SHOW [FULL] COLUMNS, DESCRIBE.
    Columns {
        /// With collation, privileges and comment.
        full: bool,
        /// The table.
        table: TableName,
        /// The filter.
        filter: Option<ast::ShowStatementFilter>,
    },
    /// SHOW INDEX.
    Index(TableName),
    /// SHOW CREATE TABLE.
    CreateTable(TableName),
    /// SHOW CREATE [MATERIALIZED] VIEW.
    CreateView(TableName),
    /// SHOW CREATE [MATERIALIZED] VIEW v PHYSICAL.
    PhysicalView(TableName),
    /// SHOW CREATE DATABASE.
    CreateDatabase(String),
    /// SHOW MATERIALIZED VIEWS.
    MaterializedViews {
        /// FROM a database.
        database: Option<String>,
        /// The filter.
        filter: Option<ast::ShowStatementFilter>,
    },
    /// SHOW VARIABLES.
    Variables {
        /// GLOBAL.
        global: bool,
        /// The filter.
        filter: Option<ast::ShowStatementFilter>,
    },
    /// SHOW STATUS.
    Status(Option<ast::ShowStatementFilter>),
    /// SHOW WARNINGS.
    Warnings,
    /// SHOW ERRORS.
    Errors,
    /// SHOW [FULL] PROCESSLIST.
    ProcessList,
    /// SHOW ENGINES.
    Engines,
    /// SHOW PLUGINS.
    Plugins,
    /// SHOW COLLATION.
    Collation(Option<ast::ShowStatementFilter>),
    /// SHOW CHARACTER SET.
    CharacterSet(Option<ast::ShowStatementFilter>),
    /// SHOW GRANTS.
    Grants,
    /// SHOW of things that are always empty here: triggers, events, procedures, functions.
    Empty(String),
}

/// Where a variable is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetScope {
    /// The session.
    Session,
    /// All later sessions.
    Global,
    /// A user variable (`@x`).
    User,
}

/// One assignment of SET. `SET NAMES x` is `names = 'x'`; `SET TRANSACTION ISOLATION LEVEL ...` is
/// `transaction_isolation = '...'`.
#[derive(Clone, Debug)]
pub struct SetItem {
    /// Where.
    pub scope: SetScope,
    /// The name in lower case, without `@@` or `@`.
    pub name: String,
    /// The value; an identifier such as ON or utf8mb4 is a string, DEFAULT is `None`.
    pub value: Option<SetValue>,
}

/// The value of an assignment.
#[derive(Clone, Debug)]
pub enum SetValue {
    /// A constant.
    Literal(Literal),
    /// An expression to evaluate.
    Expression(Box<ast::Expr>),
}
