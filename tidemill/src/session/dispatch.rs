//! Which statement goes where.

use std::borrow::Cow;

use futures::FutureExt;
use query::{DmlResult, ReadSettings, or_interrupted};
use sql::catalog::{DropKind, DropOptions};
use sql::{Literal, ParsedStatement, QueryStatement, Statement, ast};
use tokio_util::sync::CancellationToken;
use types::{Error, Result};

use super::Session;
use super::errands::needs_jobs;
use crate::result::{Done, Outcome, Rows};
use crate::sessions::Kill;

/// Statements that look at the previous one's warnings.
pub(super) fn keeps_warnings(statement: &Statement) -> bool {
    matches!(statement, Statement::Show(sql::Show::Warnings | sql::Show::Errors))
}

impl Session {
    pub(super) async fn dispatch(
        &mut self,
        parsed: &ParsedStatement,
        parameters: &[Literal],
        interrupt: &CancellationToken,
    ) -> Result<Outcome> {
        match &parsed.statement {
            Statement::Query(query) => or_interrupted(interrupt, self.select(query, parameters)).await,
            Statement::Insert(insert) => {
                self.change(&ast::Statement::Insert((**insert).clone()), parameters, interrupt).await
            }
            Statement::Update(update) => {
                self.change(&ast::Statement::Update((**update).clone()), parameters, interrupt).await
            }
            Statement::Delete(delete) => {
                self.change(&ast::Statement::Delete((**delete).clone()), parameters, interrupt).await
            }
            Statement::Explain { analyze, statement } => {
                or_interrupted(interrupt, self.explain(*analyze, statement, parameters).boxed()).await
            }
            Statement::VerifyMaterializedView { name } => {
                let database = self.database_of(name)?;
                let settings = self.read_settings();
                let verify = self.instance.engine.verify(&settings, &database, &name.name);
                let result = or_interrupted(interrupt, verify).await?;
                self.last_read(result.read_ts);
                Ok(Outcome::Rows(Rows::of_query(result)))
            }
            Statement::Show(show) => or_interrupted(interrupt, self.show(show)).await.map(Outcome::Rows),
            Statement::Begin { read_only } => {
                self.commit().await?;
                self.begin().await?;
                self.transaction_read_only = read_only.unwrap_or_else(|| self.begins_read_only());
                Ok(Outcome::Done(Done::default()))
            }
            Statement::Commit => {
                self.commit().await?;
                Ok(Outcome::Done(Done::default()))
            }
            Statement::Rollback => {
                self.set_transaction(None);
                Ok(Outcome::Done(Done::default()))
            }
            Statement::Set(items) => {
                self.set(items).await?;
                Ok(Outcome::Done(Done::default()))
            }
            Statement::Use(name) => {
                self.use_database(name).await?;
                Ok(Outcome::Done(Done::default()))
            }
            Statement::Kill { connection_id, query_only } => {
                let what = if *query_only { Kill::Query } else { Kill::Connection };
                self.instance.sessions.kill(*connection_id, what)?;
                Ok(Outcome::Done(Done::default()))
            }
            Statement::Nothing => Ok(Outcome::Done(Done::default())),
            definition => self.define(definition, &parsed.text, interrupt).await,
        }
    }

    /// The statements that change definitions; each commits the open transaction first.
    async fn define(
        &mut self,
        statement: &Statement,
        text: &str,
        interrupt: &CancellationToken,
    ) -> Result<Outcome> {
        if self.snapshot.is_some() {
            return Err(Error::mysql(1105, "definitions cannot be changed while 'tidemill_snapshot' is set"));
        }
        self.check_may_write()?;
        self.commit().await?;
        if needs_jobs(statement) && self.instance.runtime.runs_elsewhere() {
            return self.send_errand(text, interrupt).boxed().await;
        }
        // Boxed: the futures of definitions are large and rare.
        match statement {
            Statement::CreateDatabase { name, if_not_exists } => {
                self.create_database(name, *if_not_exists).boxed().await
            }
            Statement::DropDatabase { name, if_exists } => self.drop_database(name, *if_exists).boxed().await,
            Statement::CreateTable(table) => self.create_table(table).boxed().await,
            Statement::DropTable { names, if_exists, cascade } => {
                let options = DropOptions { if_exists: *if_exists, cascade: *cascade };
                self.drop_named(DropKind::Table, names, options).boxed().await
            }
            Statement::Truncate(name) => self.truncate(name, interrupt).boxed().await,
            Statement::CreateMaterializedView(view) => self.create_view(view, interrupt).boxed().await,
            Statement::DropMaterializedView { names, if_exists, cascade } => {
                let options = DropOptions { if_exists: *if_exists, cascade: *cascade };
                self.drop_named(DropKind::View, names, options).boxed().await
            }
            Statement::AlterMaterializedView { name, action } => {
                self.alter_view(name, action, interrupt).boxed().await
            }
            Statement::RefreshMaterializedView(refresh) => {
                self.refresh_view(refresh, interrupt).boxed().await
            }
            Statement::OptimizeTable { names, compact } => {
                self.optimize(names, *compact, interrupt).boxed().await
            }
            other => {
                let text = format!("this version doesn't yet support '{other:?}'");
                Err(Error::mysql(1235, text.chars().take(200).collect::<String>()))
            }
        }
    }

    /// Begins a transaction.
    async fn begin(&mut self) -> Result<()> {
        if self.snapshot.is_some() {
            return Err(Error::mysql(1105, "a transaction cannot begin while 'tidemill_snapshot' is set"));
        }
        let transaction = self.instance.engine.begin().await?;
        self.set_transaction(Some(transaction));
        self.transaction_read_only = self.begins_read_only();
        Ok(())
    }

    /// Whether transactions of the session are READ ONLY unless they say otherwise.
    fn begins_read_only(&self) -> bool {
        self.variables.int("transaction_read_only") != 0
    }

    /// Refuses a write in a READ ONLY transaction, open or the statement's own.
    fn check_may_write(&self) -> Result<()> {
        let read_only = match self.transaction {
            Some(_) => self.transaction_read_only,
            None => self.begins_read_only(),
        };
        if read_only {
            return Err(Error::mysql(1792, "Cannot execute statement in a READ ONLY transaction."));
        }
        Ok(())
    }

    /// Without autocommit, the first statement that touches tables begins a transaction.
    async fn begin_if_needed(&mut self) -> Result<()> {
        if !self.autocommit() && self.transaction.is_none() && self.snapshot.is_none() {
            self.begin().await?;
        }
        Ok(())
    }

    /// Commits the open transaction, if there is one. It is over in any case.
    pub(super) async fn commit(&mut self) -> Result<()> {
        let transaction = self.transaction.take();
        self.entry.set_transaction(None);
        match transaction {
            Some(transaction) => {
                let wrote = !transaction.is_read_only();
                let commit_ts = self.instance.engine.commit(transaction).await?;
                if wrote {
                    self.committed(commit_ts);
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn select(&mut self, statement: &QueryStatement, parameters: &[Literal]) -> Result<Outcome> {
        let touches_tables =
            ast::visit_relations(&statement.query, |_| std::ops::ControlFlow::Break(())).is_break();
        if touches_tables {
            self.begin_if_needed().await?;
        }
        let settings = self.settings_at(statement.as_of.as_ref()).await?;
        let transaction = self.transaction.as_ref();
        let result = self
            .instance
            .engine
            .select(&settings, &self.limited(&statement.query), transaction, parameters)
            .await?;
        if touches_tables {
            self.last_read(result.read_ts);
        }
        Ok(Outcome::Rows(Rows::of_query(result)))
    }

    /// A query with `sql_select_limit`, if it has no limit of its own.
    fn limited<'q>(&self, query: &'q ast::Query) -> Cow<'q, ast::Query> {
        let limit = self.variables.int("sql_select_limit");
        if limit == i64::MAX || query.limit_clause.is_some() || query.fetch.is_some() {
            return Cow::Borrowed(query);
        }
        let limit = ast::Expr::Value(ast::Value::Number(limit.to_string(), false).into());
        let mut query = query.clone();
        query.limit_clause =
            Some(ast::LimitClause::LimitOffset { limit: Some(limit), offset: None, limit_by: Vec::new() });
        Cow::Owned(query)
    }

    /// The settings of a read, in the past if AS OF says so.
    async fn settings_at(&mut self, as_of: Option<&ast::Expr>) -> Result<ReadSettings> {
        let mut settings = self.read_settings();
        if let Some(expression) = as_of {
            if self.transaction.is_some() {
                return Err(Error::mysql(8135, "AS OF TIMESTAMP cannot be used inside a transaction"));
            }
            let value = self.evaluate(expression).await?;
            settings.snapshot = self.past(&value).await?;
        }
        Ok(settings)
    }

    async fn explain(
        &mut self,
        analyze: bool,
        statement: &Statement,
        parameters: &[Literal],
    ) -> Result<Outcome> {
        if let Statement::RefreshMaterializedView(refresh) = statement {
            return self.explain_refresh(refresh).boxed().await.map(Outcome::Rows);
        }
        if analyze {
            return Err(Error::mysql(1235, "this version doesn't yet support 'EXPLAIN ANALYZE'"));
        }
        let change = match statement {
            Statement::Query(query) => {
                let settings = self.settings_at(query.as_of.as_ref()).await?;
                let query = self.limited(&query.query);
                let transaction = self.transaction.as_ref();
                let engine = &self.instance.engine;
                let result = engine.explain(&settings, &query, transaction, parameters).await?;
                return Ok(Outcome::Rows(Rows::of_query(result)));
            }
            Statement::Insert(insert) => ast::Statement::Insert((**insert).clone()),
            Statement::Update(update) => ast::Statement::Update((**update).clone()),
            Statement::Delete(delete) => ast::Statement::Delete((**delete).clone()),
            _ => {
                let text = "this version doesn't yet support 'EXPLAIN of other than SELECT, INSERT, REPLACE, UPDATE, DELETE and REFRESH'";
                return Err(Error::mysql(1235, text));
            }
        };
        let settings = self.read_settings();
        let engine = &self.instance.engine;
        let result = engine.explain_change(&settings, &change, self.transaction.as_ref(), parameters).await?;
        Ok(Outcome::Rows(Rows::of_query(result)))
    }

    /// INSERT, REPLACE, UPDATE, DELETE. It may be given up until its commit begins: a commit that is under
    /// way must not be reported as not done.
    pub(super) async fn change(
        &mut self,
        statement: &ast::Statement,
        parameters: &[Literal],
        interrupt: &CancellationToken,
    ) -> Result<Outcome> {
        if self.snapshot.is_some() {
            return Err(Error::mysql(1105, "tables cannot be written while 'tidemill_snapshot' is set"));
        }
        self.check_may_write()?;
        self.begin_if_needed().await?;
        let settings = self.read_settings();
        let engine = self.instance.engine.clone();
        let transaction = self.transaction.as_mut();
        let result = engine.execute(&settings, statement, transaction, parameters, interrupt).await?;
        Ok(Outcome::Done(self.done(result)))
    }

    fn done(&mut self, result: DmlResult) -> Done {
        if let Some(commit_ts) = result.commit_ts {
            self.committed(commit_ts);
        }
        let affected_rows = if self.found_rows {
            result.affected_rows.max(result.matched_rows)
        } else {
            result.affected_rows
        };
        Done { affected_rows, info: result.info }
    }
}
