//! SHOW in all its forms: small tables of text.

mod filter;
mod lists;

use sql::catalog::{Catalog, TableDefinition};
use sql::{Show, TableName, ast};
use types::{Error, Result};

use self::filter::Listing;
use super::Session;
use crate::describe;
use crate::mysql::errors;
use crate::physical::Physical;
use crate::result::{Column, Rows};

pub(crate) use self::filter::like;

impl Session {
    /// Answers a SHOW.
    pub(super) async fn show(&mut self, show: &Show) -> Result<Rows> {
        let listing = match show {
            Show::Databases(filter) => self.show_databases().await?.filtered(filter.as_ref())?,
            Show::Tables { full, database, filter } => {
                self.show_tables(*full, database.as_deref()).await?.filtered(filter.as_ref())?
            }
            Show::TableStatus { database, filter } => {
                self.show_table_status(database.as_deref()).await?.filtered(filter.as_ref())?
            }
            Show::Columns { full, table, filter } => {
                self.show_columns(*full, table).await?.filtered(filter.as_ref())?
            }
            Show::Index(table) => self.show_index(table).await?,
            Show::CreateTable(name) | Show::CreateView(name) => self.show_create(name).await?,
            Show::PhysicalView(name) => self.show_physical(name).await?,
            Show::CreateDatabase(name) => self.show_create_database(name).await?,
            Show::MaterializedViews { database, filter } => {
                self.show_views(database.as_deref()).await?.filtered(filter.as_ref())?
            }
            Show::Variables { global, filter } => {
                let variables =
                    if *global { self.instance.global_variables() } else { self.variables.clone() };
                lists::variables(&variables).filtered(filter.as_ref())?
            }
            Show::Status(filter) => lists::status(&self.instance).filtered(filter.as_ref())?,
            Show::Warnings => lists::warnings(&self.warnings),
            Show::Errors => {
                let errors: Vec<_> =
                    self.warnings.iter().filter(|warning| warning.level == "Error").cloned().collect();
                lists::warnings(&errors)
            }
            Show::ProcessList => return Ok(self.process_list()),
            Show::Engines => lists::engines(),
            Show::Plugins => lists::plugins(),
            Show::Collation(filter) => lists::collations().filtered(filter.as_ref())?,
            Show::CharacterSet(filter) => lists::charsets().filtered(filter.as_ref())?,
            Show::Grants => lists::grants(&self.user),
            Show::Empty(what) => lists::empty(what),
        };
        Ok(listing.into_rows())
    }

    /// SHOW PROCESSLIST.
    pub(crate) fn process_list(&self) -> Rows {
        lists::processes(&self.instance.sessions.list())
    }

    /// COM_FIELD_LIST: a table's columns that are like a pattern, with their defaults.
    ///
    /// # Errors
    /// 1146 if there is no such table.
    pub(crate) async fn field_list(
        &mut self,
        table: &str,
        pattern: &str,
    ) -> Result<Vec<(Column, Option<String>)>> {
        let name = TableName { database: None, name: table.to_owned() };
        let database = self.database_of(&name)?;
        if let Some(schema) = self.instance.system_schema(&database, table) {
            let fields = schema.fields().iter();
            let columns =
                fields.map(|field| Column::expression(field.name().clone(), field.data_type().clone()));
            return Ok(columns.map(|column| (column, None)).collect());
        }
        let catalog = self.catalog().await?;
        let definition = catalog.require(&database, table)?;
        let columns = definition.info.columns.iter().enumerate();
        let columns = columns.filter(|(_, column)| pattern.is_empty() || like(&column.name, pattern));
        Ok(columns
            .map(|(at, column)| (Column::of_table(definition, at), describe::shown_default(column)))
            .collect())
    }

    fn database_or_current(&self, database: Option<&str>) -> Result<String> {
        let name = TableName { database: database.map(str::to_owned), name: String::new() };
        self.database_of(&name)
    }

    async fn show_databases(&self) -> Result<Listing> {
        let catalog = self.catalog().await?;
        let mut names: Vec<String> = self.instance.system_databases();
        names.extend(catalog.databases.iter().cloned());
        names.sort();
        names.dedup();
        Ok(Listing::new(&["Database"], names.into_iter().map(|name| vec![Some(name)]).collect()))
    }

    /// The tables and views of a database by name, each with its MySQL table type.
    fn tables_of(&self, catalog: &Catalog, database: &str) -> Result<Vec<(String, &'static str)>> {
        let database = database.to_lowercase();
        if self.instance.has_system_database(&database) {
            let names = self.instance.system_tables(&database).into_iter();
            return Ok(names.map(|name| (name, "SYSTEM VIEW")).collect());
        }
        if !catalog.has_database(&database) {
            let text = format!("Unknown database '{database}'");
            return Err(Error::mysql(errors::UNKNOWN_DATABASE, text));
        }
        let names = catalog.names.iter().filter(|((of, _), _)| *of == database);
        let named = names.filter_map(|(_, id)| catalog.tables.get(id)).map(|definition| {
            let kind = if definition.view.is_some() { "VIEW" } else { "BASE TABLE" };
            (definition.info.name.clone(), kind)
        });
        Ok(named.collect())
    }

    async fn show_tables(&self, full: bool, database: Option<&str>) -> Result<Listing> {
        let database = self.database_or_current(database)?;
        let catalog = self.catalog().await?;
        let tables = self.tables_of(&catalog, &database)?;
        let heading = format!("Tables_in_{database}");
        Ok(if full {
            let rows = tables.into_iter().map(|(name, kind)| vec![Some(name), Some(kind.to_owned())]);
            Listing::new(&[&heading, "Table_type"], rows.collect())
        } else {
            Listing::new(&[&heading], tables.into_iter().map(|(name, _)| vec![Some(name)]).collect())
        })
    }

    async fn show_table_status(&self, database: Option<&str>) -> Result<Listing> {
        let database = self.database_or_current(database)?;
        let catalog = self.catalog().await?;
        let tables = self.tables_of(&catalog, &database)?;
        Ok(lists::table_status(tables))
    }

    async fn show_columns(&self, full: bool, table: &TableName) -> Result<Listing> {
        let database = self.database_of(table)?;
        if let Some(schema) = self.instance.system_schema(&database, &table.name) {
            return Ok(lists::system_columns(full, &schema));
        }
        let catalog = self.catalog().await?;
        let definition = catalog.require(&database, &table.name)?;
        Ok(lists::columns(full, &definition.info))
    }

    async fn show_index(&self, table: &TableName) -> Result<Listing> {
        let database = self.database_of(table)?;
        if self.instance.system_schema(&database, &table.name).is_some() {
            return Ok(lists::indexes(None));
        }
        let catalog = self.catalog().await?;
        Ok(lists::indexes(Some(&catalog.require(&database, &table.name)?.info)))
    }

    async fn show_create(&self, name: &TableName) -> Result<Listing> {
        let database = self.database_of(name)?;
        let catalog = self.catalog().await?;
        let definition: &TableDefinition = catalog.require(&database, &name.name)?;
        let shown_name = Some(definition.info.name.clone());
        Ok(match describe::create_view(definition) {
            Some(text) => Listing::new(
                &["Materialized View", "Create Materialized View"],
                vec![vec![shown_name, Some(text)]],
            ),
            None => {
                let text = describe::create_table(&definition.info);
                Listing::new(&["Table", "Create Table"], vec![vec![shown_name, Some(text)]])
            }
        })
    }

    async fn show_physical(&self, name: &TableName) -> Result<Listing> {
        let database = self.database_of(name)?;
        let catalog = self.catalog().await?;
        let definition = catalog.require(&database, &name.name)?;
        let physical = Physical::of(&catalog, definition)?;
        let statuses = self.instance.runtime.views().await?;
        let status = statuses.iter().find(|status| status.view == definition.id());
        let text = physical.text(status, self.zone());
        let row = vec![Some(definition.info.name.clone()), Some(text)];
        Ok(Listing::new(&["Materialized View", "Physical Schema"], vec![row]))
    }

    async fn show_create_database(&self, name: &str) -> Result<Listing> {
        let catalog = self.catalog().await?;
        if !catalog.has_database(name) && !self.instance.has_system_database(&name.to_lowercase()) {
            return Err(Error::mysql(errors::UNKNOWN_DATABASE, format!("Unknown database '{name}'")));
        }
        let text =
            format!("CREATE DATABASE {} /*!40100 DEFAULT CHARACTER SET utf8mb4 */", describe::quoted(name));
        Ok(Listing::new(&["Database", "Create Database"], vec![vec![Some(name.to_owned()), Some(text)]]))
    }

    async fn show_views(&self, database: Option<&str>) -> Result<Listing> {
        let wanted = match database {
            Some(name) => Some(name.to_lowercase()),
            None => self.database.clone(),
        };
        let catalog = self.catalog().await?;
        if let Some(name) = wanted.as_deref().filter(|name| !catalog.has_database(name))
            && !self.instance.has_system_database(name)
        {
            return Err(Error::mysql(errors::UNKNOWN_DATABASE, format!("Unknown database '{name}'")));
        }
        let views = self.instance.runtime.views().await?;
        let of_database = views
            .iter()
            .filter(|view| wanted.as_ref().is_none_or(|name| view.database.eq_ignore_ascii_case(name)));
        Ok(lists::views(of_database, self.zone()))
    }
}

/// A filter as sqlparser has it.
type Filter = ast::ShowStatementFilter;
