//! Names in a view's query: base tables as scans that take no filters, views as their queries.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, TableSource};
use tidb::ColumnInfo;
use types::{Error, Result};

use crate::catalog::{Catalog, TableDefinition, ViewDefinition};
use crate::functions::Library;
use crate::lower::convert;
use crate::meaning::Rewrite;
use crate::plan::{Resolver, logical_plan, refused_fields, table_columns};
use crate::{Settings, from_datafusion};

/// The catalog as a resolver for planning views.
pub(super) struct CatalogNames<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) settings: &'a Settings,
}

/// A table or an inlined view.
#[derive(Debug)]
pub(super) struct Source {
    /// What the name stands for, which hangs on the text that has it.
    pub(super) definition: Arc<TableDefinition>,
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
        let visible = definition.visible_columns().iter().map(|column| {
            let nullable = !column.not_null;
            Field::new(column.name.to_lowercase(), column.column_type.arrow_type(), nullable)
        });
        let refused = refused_fields(definition).into_iter().map(|field| {
            let name = field.name().to_lowercase();
            field.with_name(name)
        });
        let schema = Arc::new(Schema::new(visible.chain(refused).collect::<Vec<Field>>()));
        Ok(Arc::new(Source { definition: Arc::clone(definition), schema, plan }))
    }

    fn columns(&self, database: &str, name: &str) -> Option<Vec<ColumnInfo>> {
        Some(self.catalog.find(database, name)?.visible_columns().to_vec())
    }

    fn refused(&self, database: &str, name: &str) -> Vec<String> {
        let definition = self.catalog.find(database, name);
        let refused = definition.map_or(&[][..], |definition| definition.refused_columns());
        refused.iter().map(|(column, _)| column.clone()).collect()
    }
}

impl CatalogNames<'_> {
    /// A view's query under its stored settings, in the view's columns.
    fn inlined(&self, definition: &TableDefinition, view: &ViewDefinition) -> Result<LogicalPlan> {
        let settings = self.settings.with_view(&view.settings);
        let mut query = crate::parse::parse_query(&view.query)?;
        let catalog = self.catalog.bound_to(view);
        let names = CatalogNames { catalog: &catalog, settings: &settings };
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
        if self.catalog.reads_foreign(&view.base_tables) {
            check_view_types(definition, &schema)?;
        }
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

/// Refuses values that a view's columns cannot hold as they are: TiDB gave a column below another type.
///
/// # Errors
/// MySQL 1105, with the column.
pub fn check_view_types(definition: &TableDefinition, schema: &DFSchema) -> Result<()> {
    for (column, field) in definition.info.columns.iter().zip(schema.fields()) {
        let (now, declared) = (field.data_type(), column.column_type.arrow_type());
        let holds = *now == declared
            || (now.is_integer() && (declared.is_integer() || declared.is_decimal()))
            || matches!(now, DataType::Null)
            || keeps_digits(now, &declared);
        if !holds {
            let name = definition.full_name();
            let text = format!(
                "column `{}` of view '{name}' has another type since TiDB changed a table that it reads",
                column.name
            );
            return Err(Error::mysql(1105, text));
        }
    }
    Ok(())
}

/// Whether a decimal has no more digits after the point than another.
fn keeps_digits(now: &DataType, declared: &DataType) -> bool {
    let scale = |data_type: &DataType| match data_type {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => Some(*scale),
        _ => None,
    };
    matches!((scale(now), scale(declared)), (Some(now), Some(declared)) if now <= declared)
}
