//! SET: variables of the session, global ones, user variables, and the past.

use chrono::NaiveDateTime;
use sql::{Literal, SetItem, SetScope, SetValue, Statement, ast};
use types::{Error, Result, Timestamp};

use super::variables::shown;
use super::{Session, Warning, token};
use crate::mysql::errors;
use crate::result::Rows;

impl Session {
    /// Carries out the assignments of a SET, in order.
    pub(super) async fn set(&mut self, items: &[SetItem]) -> Result<()> {
        for item in items {
            let value = match &item.value {
                None => None,
                Some(SetValue::Literal(literal)) => Some(literal.clone()),
                Some(SetValue::Expression(expression)) => Some(self.evaluate(expression).await?),
            };
            self.set_one(item, value.as_ref()).await?;
        }
        Ok(())
    }

    async fn set_one(&mut self, item: &SetItem, value: Option<&Literal>) -> Result<()> {
        let name = item.name.as_str();
        let warning = match item.scope {
            SetScope::User => {
                self.variables.set_user(name, value.cloned().unwrap_or(Literal::Null));
                None
            }
            SetScope::Global => self.instance.set_global(name, value)?,
            SetScope::Session => match name {
                "names" | "character_set" | "charset" => {
                    self.variables.set_names(value)?;
                    None
                }
                "tidemill_snapshot" => {
                    self.set_snapshot(value).await?;
                    None
                }
                "tidemill_wait_for" => {
                    self.set_wait_for(value).await?;
                    None
                }
                _ => {
                    let globals = self.instance.global_variables();
                    let warning = self.variables.set(name, value, Some(&globals))?;
                    if name == "autocommit" && self.autocommit() {
                        self.commit().await?;
                    }
                    warning
                }
            },
        };
        let warnings =
            warning.map(|message| Warning { level: "Warning", code: errors::TRUNCATED_VALUE, message });
        self.warnings.extend(warnings);
        Ok(())
    }

    async fn set_snapshot(&mut self, value: Option<&Literal>) -> Result<()> {
        if self.transaction.is_some() {
            let text = "Variable 'tidemill_snapshot' can't be set inside a transaction";
            return Err(Error::mysql(errors::WRONG_VALUE_FOR_VARIABLE, text));
        }
        let value = value.cloned().unwrap_or_else(|| Literal::String(String::new()));
        // Check first, so that a wrong value changes nothing.
        let snapshot = self.past(&value).await?;
        self.variables.set("tidemill_snapshot", Some(&value), None)?;
        self.snapshot = snapshot;
        Ok(())
    }

    async fn set_wait_for(&mut self, value: Option<&Literal>) -> Result<()> {
        let value = value.cloned().unwrap_or_else(|| Literal::String(String::new()));
        let text = shown(&value).unwrap_or_default();
        let wait_for = match text.trim() {
            "" => None,
            text => Some(token::parse(text, self.instance.store_identity)?),
        };
        if let Some(commit_ts) = wait_for {
            let newest = self.instance.store.read_timestamp().await?;
            if commit_ts > newest {
                let text = format!("token '{text}' is ahead of the store's newest timestamp {newest}");
                return Err(Error::mysql(1105, text));
            }
        }
        self.variables.set("tidemill_wait_for", Some(&value), None)?;
        self.wait_for = wait_for;
        Ok(())
    }

    /// The point in time that a value names: a TSO number, or a date with time in the session's zone;
    /// `None` for an empty one.
    ///
    /// # Errors
    /// 1292 if it is no point in time, 1105 if it lies ahead, 9006 if its history is gone.
    pub(super) async fn past(&self, value: &Literal) -> Result<Option<Timestamp>> {
        let Some(text) = shown(value).filter(|text| !text.trim().is_empty()) else { return Ok(None) };
        let text = text.trim();
        let at = match text.parse::<u64>() {
            Ok(number) => Timestamp(number),
            Err(_) => self.datetime_ts(text).ok_or_else(|| {
                Error::mysql(1292, format!("Incorrect datetime value: '{text}' for a point in time"))
            })?,
        };
        let store = &self.instance.store;
        let newest = store.read_timestamp().await?;
        if at > newest {
            let text = format!(
                "cannot read at {at} ('{text}'): it lies ahead of the store's newest timestamp {newest}"
            );
            return Err(Error::mysql(1105, text));
        }
        let oldest = store.gc_barrier().await?;
        if at < oldest {
            let text = format!("cannot read at {at} ('{text}'): history before {oldest} is gone");
            return Err(Error::mysql(9006, text));
        }
        Ok(Some(at))
    }

    fn datetime_ts(&self, text: &str) -> Option<Timestamp> {
        let text = text.replacen('T', " ", 1);
        let local = NaiveDateTime::parse_from_str(&text, "%Y-%m-%d %H:%M:%S%.f")
            .or_else(|_| NaiveDateTime::parse_from_str(&format!("{text} 00:00:00"), "%Y-%m-%d %H:%M:%S"))
            .ok()?;
        let instant = self.zone().to_instant(local.and_utc().timestamp_micros())?;
        let ms = u64::try_from(instant.div_euclid(1000)).ok()?;
        (ms < 1 << 46).then(|| Timestamp::from_parts(ms, 0))
    }

    /// The value of an expression over constants, variables and subqueries.
    pub(super) async fn evaluate(&mut self, expression: &ast::Expr) -> Result<Literal> {
        let text = format!("SELECT {expression}");
        let mut statements = self.parse(&text)?;
        let Some(Statement::Query(query)) = statements.pop().map(|parsed| parsed.statement) else {
            return Err(Error::mysql(errors::PARSE_ERROR, format!("'{expression}' is no expression")));
        };
        let settings = self.read_settings();
        let parameters: &[Literal] = &[];
        let result = self
            .instance
            .engine
            .select(&settings, &query.query, self.transaction.as_ref(), parameters)
            .await?;
        let batches = Rows::of_query(result).collect().await?;
        super::tables::first_value(&batches)
    }
}
