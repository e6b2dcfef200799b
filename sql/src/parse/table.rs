//! CREATE TABLE: from sqlparser's tree to what the catalog keeps, or a refusal by name.

use sqlparser::ast::{
    BinaryLength, CharacterLength, ColumnDef, ColumnOption, CommentDef, CreateTable as Parsed,
    CreateTableOptions, DataType, ExactNumberInfo, Expr, IndexColumn, SqlOption, TableConstraint,
};
use sqlparser::parser::ParserError;
use tidb::ColumnType;
use types::{Error, Result};

use super::{to_table_name, unsupported};
use crate::{ColumnDefinition, CreateTable, Statement};

pub(super) fn create_table(parsed: Parsed) -> Result<Statement> {
    refuse_clauses(&parsed)?;
    let name = to_table_name(&parsed.name).map_err(syntax)?;
    let mut create = CreateTable {
        name,
        if_not_exists: parsed.if_not_exists,
        columns: Vec::with_capacity(parsed.columns.len()),
        primary_key: Vec::new(),
        comment: String::new(),
        notes: Vec::new(),
    };
    for column in &parsed.columns {
        add_column(&mut create, column)?;
    }
    for constraint in &parsed.constraints {
        add_constraint(&mut create, constraint)?;
    }
    table_options(&mut create, &parsed.table_options)?;
    if let Some(comment) = &parsed.comment {
        create.comment = comment_text(comment);
    }
    let key = create.primary_key.clone();
    for column in &mut create.columns {
        column.not_null |= key.iter().any(|name| name.eq_ignore_ascii_case(&column.name));
    }
    Ok(Statement::CreateTable(Box::new(create)))
}

fn syntax(error: ParserError) -> Error {
    Error::mysql(1064, error.to_string())
}

fn refuse_clauses(parsed: &Parsed) -> Result<()> {
    let refused = [
        (parsed.or_replace, "CREATE OR REPLACE TABLE"),
        (parsed.temporary, "CREATE TEMPORARY TABLE"),
        (parsed.query.is_some(), "CREATE TABLE ... AS SELECT"),
        (parsed.like.is_some(), "CREATE TABLE ... LIKE"),
        (parsed.partition_by.is_some(), "PARTITION BY"),
    ];
    match refused.iter().find(|(given, _)| *given) {
        Some((_, what)) => Err(unsupported(what)),
        None => Ok(()),
    }
}

fn add_column(create: &mut CreateTable, parsed: &ColumnDef) -> Result<()> {
    let name = parsed.name.value.clone();
    let column_type = column_type(&parsed.data_type)?;
    let mut column =
        ColumnDefinition { name, column_type, not_null: false, default: None, comment: String::new() };
    for option in &parsed.options {
        match &option.option {
            ColumnOption::Null => {}
            ColumnOption::NotNull => column.not_null = true,
            ColumnOption::Default(expr) => column.default = Some(default_text(expr)?),
            ColumnOption::Comment(text) => column.comment.clone_from(text),
            ColumnOption::PrimaryKey(_) => set_primary_key(create, vec![column.name.clone()])?,
            ColumnOption::CharacterSet(name) | ColumnOption::Collation(name) => {
                let name = name.to_string();
                check_charset(&name).map_err(|_| unsupported(&format!("collation {name}")))?;
                if name.eq_ignore_ascii_case("binary") {
                    return Err(unsupported(
                        "CHARACTER SET binary of a text (declare BINARY, VARBINARY or BLOB)",
                    ));
                }
            }
            other => return Err(unsupported(&format!("column option {other}"))),
        }
    }
    create.columns.push(column);
    Ok(())
}

/// DEFAULT as SQL text. Strings are written so that they parse back under backslash escapes.
fn default_text(expr: &Expr) -> Result<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            sqlparser::ast::Value::SingleQuotedString(text)
            | sqlparser::ast::Value::DoubleQuotedString(text) => {
                Ok(format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''")))
            }
            other => Ok(other.to_string()),
        },
        Expr::UnaryOp { expr: inner, .. } if matches!(inner.as_ref(), Expr::Value(_)) => Ok(expr.to_string()),
        Expr::TypedString(_) => Ok(expr.to_string()),
        Expr::Function(function) => {
            let name = function.name.to_string().to_uppercase();
            match name.as_str() {
                "CURRENT_TIMESTAMP" | "NOW" | "LOCALTIME" | "LOCALTIMESTAMP" => Ok(expr.to_string()),
                _ => Err(unsupported(&format!("DEFAULT {expr}"))),
            }
        }
        _ => Err(unsupported(&format!("DEFAULT {expr}"))),
    }
}

fn add_constraint(create: &mut CreateTable, constraint: &TableConstraint) -> Result<()> {
    match constraint {
        TableConstraint::PrimaryKey(key) => {
            let columns = key.columns.iter().map(key_column).collect::<Result<Vec<_>>>()?;
            set_primary_key(create, columns)
        }
        // A plain index only makes reads faster; leaving it out changes no answer.
        TableConstraint::Index(index) => {
            let name = index.name.as_ref().map_or_else(String::new, |name| format!(" '{}'", name.value));
            create.notes.push(format!("secondary index{name} is left out: there are none yet"));
            Ok(())
        }
        TableConstraint::Unique(_) => Err(unsupported("UNIQUE KEY")),
        TableConstraint::ForeignKey(_) => Err(unsupported("FOREIGN KEY")),
        TableConstraint::Check(_) => Err(unsupported("CHECK")),
        other => Err(unsupported(&other.to_string())),
    }
}

fn key_column(column: &IndexColumn) -> Result<String> {
    let descending = column.column.options.asc == Some(false);
    match &column.column.expr {
        Expr::Identifier(ident) if !descending => Ok(ident.value.clone()),
        _ => Err(unsupported(&format!("key part {column}"))),
    }
}

fn set_primary_key(create: &mut CreateTable, columns: Vec<String>) -> Result<()> {
    if !create.primary_key.is_empty() {
        return Err(Error::mysql(1068, "multiple primary key defined"));
    }
    create.primary_key = columns;
    Ok(())
}

fn table_options(create: &mut CreateTable, options: &CreateTableOptions) -> Result<()> {
    let (CreateTableOptions::Plain(options)
    | CreateTableOptions::With(options)
    | CreateTableOptions::Options(options)
    | CreateTableOptions::TableProperties(options)) = options
    else {
        return Ok(());
    };
    for option in options {
        match option {
            SqlOption::Comment(comment) => create.comment = comment_text(comment),
            SqlOption::KeyValue { key, value } => {
                let value = value.to_string();
                table_option(create, &key.value, value.trim_matches(['\'', '"', '`']))?;
            }
            SqlOption::NamedParenthesizedList(list) => {
                let value = list.name.as_ref().map_or("", |name| name.value.as_str());
                table_option(create, &list.key.value, value)?;
            }
            other => return Err(unsupported(&format!("table option {other}"))),
        }
    }
    Ok(())
}

/// Options of how and where rows are stored, which are not for this store.
const STORAGE_OPTIONS: [&str; 14] = [
    "auto_increment",
    "avg_row_length",
    "checksum",
    "compression",
    "delay_key_write",
    "key_block_size",
    "max_rows",
    "min_rows",
    "pack_keys",
    "row_format",
    "stats_auto_recalc",
    "stats_persistent",
    "stats_sample_pages",
    "engine_attribute",
];

fn table_option(create: &mut CreateTable, name: &str, value: &str) -> Result<()> {
    let name = name.to_lowercase();
    if name.contains("char") || name.contains("collat") {
        return check_charset(value).map_err(|_| unsupported(&format!("{name} {value}")));
    }
    // Every dump names the engine.
    if name == "engine" && value.eq_ignore_ascii_case("innodb") {
        return Ok(());
    }
    if name == "engine" || STORAGE_OPTIONS.contains(&name.as_str()) {
        create.notes.push(format!("table option {} = {value} is left out", name.to_uppercase()));
        return Ok(());
    }
    Err(unsupported(&format!("table option {}", name.to_uppercase())))
}

fn comment_text(comment: &CommentDef) -> String {
    let (CommentDef::WithEq(text) | CommentDef::WithoutEq(text)) = comment;
    text.clone()
}

/// Texts are utf8mb4 under utf8mb4_bin, bytes are binary; anything else would compare otherwise.
pub(super) fn check_charset(name: &str) -> std::result::Result<(), ParserError> {
    const KNOWN: [&str; 3] = ["utf8mb4", "utf8mb4_bin", "binary"];
    if KNOWN.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    let text = format!("character set or collation '{name}' is not supported (utf8mb4_bin and binary are)");
    Err(ParserError::ParserError(text))
}

/// The column type of a declared type.
pub(crate) fn column_type(declared: &DataType) -> Result<ColumnType> {
    if let Some(integer) = integer_type(declared) {
        return Ok(integer);
    }
    let column_type = match declared {
        DataType::Float(info) => match precision(info) {
            Some(bits) if bits > 24 && matches!(info, ExactNumberInfo::Precision(_)) => ColumnType::Double,
            _ => ColumnType::Float,
        },
        DataType::Float4 => ColumnType::Float,
        DataType::Double(_) | DataType::DoublePrecision | DataType::Real | DataType::Float8 => {
            ColumnType::Double
        }
        DataType::Decimal(info) | DataType::Numeric(info) | DataType::Dec(info) => decimal_type(info)?,
        DataType::Char(length) | DataType::Character(length) => {
            ColumnType::Char(characters(*length, 255, Some(1))?)
        }
        DataType::Varchar(length) | DataType::CharacterVarying(length) | DataType::CharVarying(length) => {
            ColumnType::Varchar(characters(*length, 16383, None)?)
        }
        DataType::TinyText => ColumnType::Text(255),
        DataType::Text => ColumnType::Text(65_535),
        DataType::MediumText => ColumnType::Text(16_777_215),
        DataType::LongText => ColumnType::Text(u32::MAX),
        DataType::Binary(length) => ColumnType::Binary(bounded(length.unwrap_or(1), 255)?),
        DataType::Varbinary(Some(BinaryLength::IntegerLength { length })) => {
            ColumnType::Varbinary(bounded(*length, 65_535)?)
        }
        DataType::TinyBlob => ColumnType::Blob(255),
        DataType::Blob(_) => ColumnType::Blob(65_535),
        DataType::MediumBlob => ColumnType::Blob(16_777_215),
        DataType::LongBlob => ColumnType::Blob(u32::MAX),
        DataType::Date => ColumnType::Date,
        DataType::Datetime(fsp) => ColumnType::Datetime(fraction(*fsp)?),
        DataType::Timestamp(fsp, _) => ColumnType::Timestamp(fraction(*fsp)?),
        other => return Err(unsupported(&format!("type {other}"))),
    };
    Ok(column_type)
}

fn integer_type(declared: &DataType) -> Option<ColumnType> {
    let (bits, unsigned) = match declared {
        DataType::Bool | DataType::Boolean | DataType::TinyInt(_) => (8, false),
        DataType::TinyIntUnsigned(_) => (8, true),
        DataType::SmallInt(_) | DataType::Int2(_) => (16, false),
        DataType::SmallIntUnsigned(_) | DataType::Int2Unsigned(_) => (16, true),
        DataType::MediumInt(_) => (24, false),
        DataType::MediumIntUnsigned(_) => (24, true),
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => (32, false),
        DataType::IntUnsigned(_) | DataType::IntegerUnsigned(_) | DataType::Int4Unsigned(_) => (32, true),
        DataType::BigInt(_) | DataType::Int8(_) => (64, false),
        DataType::BigIntUnsigned(_) | DataType::Int8Unsigned(_) => (64, true),
        _ => return None,
    };
    Some(ColumnType::Int { bits, unsigned })
}

fn precision(info: &ExactNumberInfo) -> Option<u64> {
    match info {
        ExactNumberInfo::None => None,
        ExactNumberInfo::Precision(precision) | ExactNumberInfo::PrecisionAndScale(precision, _) => {
            Some(*precision)
        }
    }
}

pub(crate) fn decimal_type(info: &ExactNumberInfo) -> Result<ColumnType> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => (10, 0),
        ExactNumberInfo::Precision(precision) => (*precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
    };
    // DECIMAL(0) is DECIMAL(10).
    let precision = if precision == 0 { 10 } else { precision };
    let too_big = || Error::mysql(1426, format!("too big precision {precision} specified, maximum is 65"));
    let precision = u8::try_from(precision).ok().filter(|precision| *precision <= 65).ok_or_else(too_big)?;
    let wrong_scale = || Error::mysql(1425, format!("scale {scale} is not in 0 to 30"));
    let scale = u8::try_from(scale).ok().filter(|scale| *scale <= 30).ok_or_else(wrong_scale)?;
    if scale > precision {
        return Err(Error::mysql(1427, "for DECIMAL(M,D), M must be >= D"));
    }
    Ok(ColumnType::Decimal { precision, scale })
}

fn characters(length: Option<CharacterLength>, max: u64, default: Option<u64>) -> Result<u32> {
    let length = match length {
        Some(CharacterLength::IntegerLength { length, .. }) => length,
        Some(CharacterLength::Max) => return Err(unsupported("VARCHAR(MAX)")),
        None => default.ok_or_else(|| Error::mysql(1064, "VARCHAR needs a length"))?,
    };
    bounded(length, max)
}

fn bounded(length: u64, max: u64) -> Result<u32> {
    u32::try_from(length)
        .ok()
        .filter(|_| length <= max)
        .ok_or_else(|| Error::mysql(1074, format!("column length too big (max = {max})")))
}

fn fraction(fsp: Option<u64>) -> Result<u8> {
    let fsp = fsp.unwrap_or(0);
    u8::try_from(fsp)
        .ok()
        .filter(|fsp| *fsp <= 6)
        .ok_or_else(|| Error::mysql(1426, format!("too big precision {fsp} specified, maximum is 6")))
}
