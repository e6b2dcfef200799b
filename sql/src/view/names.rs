//! Names in a view's query: base tables as scans that take no filters, views as their queries.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::Column;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, TableSource};
use tidb::ColumnInfo;
use types::{Error, Result};

use crate::catalog::{Catalog, TableDefinition, ViewDefinition};
use crate::functions::Library;
use crate::lower::convert;
use crate::meaning::Rewrite;
use crate::plan::{Resolver, logical_plan, table_columns};
use crate::{Settings, from_datafusion};

/// The catalog as a resolver for planning views.
pub(super) struct CatalogNames<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) settings: &'a Settings,
}

/// A table or an inlined view.
#[derive(Debug)]
struct Source {
    schema: SchemaRef,
    plan: Option<LogicalPlan>,
}

impl TableSource for Source {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        self.plan.as_ref().map(Cow::Borrowed)
    }
}

impl Resolver for CatalogNames<'_> {
    fn table(&self, database: &str, name: &str) -> Result<Arc<dyn TableSource>> {
        let definition = self.catalog.require(database, name)?;
        let plan = match &definition.view {
            None => None,
            Some(view) => Some(self.inlined(definition, view)?),
        };
        let fields: Vec<Field> = definition
            .info
            .columns
            .iter()
            .map(|column| {
                let nullable = !column.not_null;
                Field::new(column.name.to_lowercase(), column.column_type.arrow_type(), nullable)
            })
            .collect();
        Ok(Arc::new(Source { schema: Arc::new(Schema::new(fields)), plan }))
    }

    fn columns(&self, database: &str, name: &str) -> Option<Vec<ColumnInfo>> {
        Some(self.catalog.find(database, name)?.info.columns.clone())
    }
}

impl CatalogNames<'_> {
    /// A view's query under its stored settings, in the view's columns.
    fn inlined(&self, definition: &TableDefinition, view: &ViewDefinition) -> Result<LogicalPlan> {
        let settings = self.settings.with_view(&view.settings);
        let mut query = crate::parse::parse_query(&view.query)?;
        let names = CatalogNames { catalog: self.catalog, settings: &settings };
        let columns_of = |database: &str, name: &str| table_columns(&names, database, name);
        let mut rewrite = Rewrite::new(&settings, true).with_columns(&columns_of);
        rewrite.outermost(&mut query)?;
        let library = Library::new(&settings)?;
        let (plan, _) = logical_plan(query, &names, &library)?;
        let columns = &definition.info.columns;
        if plan.schema().fields().len() != columns.len() {
            let name = definition.full_name();
            return Err(Error::corrupt(format!("view '{name}' has not the columns of its query any more")));
        }
        let schema = Arc::clone(plan.schema());
        let outputs = columns.iter().enumerate().map(|(index, target)| {
            let (qualifier, field) = schema.qualified_field(index);
            let column = Expr::Column(Column::from((qualifier, field)));
            let target_type = target.column_type.arrow_type();
            convert(column, field.data_type(), &target_type, &library).alias(target.name.to_lowercase())
        });
        let projection = Projection::try_new(outputs.collect(), Arc::new(plan)).map_err(from_datafusion)?;
        Ok(LogicalPlan::Projection(projection))
    }
}
