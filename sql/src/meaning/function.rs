//! Function calls: those with a syntax or a meaning that ordinary calls do not have.

use sqlparser::ast::{
    DateTimeField, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, Interval, ObjectName, Value, WindowType,
};
use types::{Error, Result};

use super::expr::take;
use super::{Rewrite, strip};
use crate::functions::wrong_count;
use crate::parse::unsupported;

/// Functions whose value is not a function of their arguments.
const VOLATILE: [&str; 26] = [
    "now",
    "current_timestamp",
    "localtime",
    "localtimestamp",
    "sysdate",
    "curdate",
    "current_date",
    "curtime",
    "current_time",
    "utc_timestamp",
    "utc_date",
    "utc_time",
    "rand",
    "random",
    "uuid",
    "uuid_short",
    "database",
    "schema",
    "user",
    "current_user",
    "session_user",
    "system_user",
    "version",
    "connection_id",
    "last_insert_id",
    "tidemill_token",
];

/// Functions with a form of their own: with any other number of arguments they are none.
const OF_FIXED_COUNT: [&str; 12] = [
    "if",
    "nullif",
    "isnull",
    "date_add",
    "adddate",
    "date_sub",
    "subdate",
    "timestampdiff",
    "timestampadd",
    "mod",
    "ifnull",
    "coalesce",
];

/// Functions without arguments.
const OF_NO_ARGUMENT: [&str; 12] = [
    "database",
    "schema",
    "user",
    "current_user",
    "session_user",
    "system_user",
    "version",
    "connection_id",
    "row_count",
    "found_rows",
    "curdate",
    "tidemill_token",
];

impl Rewrite<'_> {
    pub(super) fn function(&mut self, expr: &mut Expr) -> Result<()> {
        let Expr::Function(function) = expr else { return Ok(()) };
        let name = function_name(&function.name)?;
        if self.for_view && VOLATILE.contains(&name.as_str()) {
            return Err(unsupported(&format!("{}() in a view", name.to_uppercase())));
        }
        if function.over.is_some() {
            return self.window_function(function, &name);
        }
        if function.filter.is_some() || !function.within_group.is_empty() || is_aggregate(&name) {
            return self.aggregate(function, &name);
        }
        let mut arguments = arguments(function)?;
        if let Some(replacement) = self.session_function(&name, &mut arguments)? {
            *expr = replacement;
            return Ok(());
        }
        *expr = self.scalar_function(&name, arguments)?;
        Ok(())
    }

    /// What the session or the statement's time decides.
    fn session_function(&mut self, name: &str, arguments: &mut [Expr]) -> Result<Option<Expr>> {
        let settings = self.settings;
        if OF_NO_ARGUMENT.contains(&name) && !arguments.is_empty() {
            return Err(wrong_count(name));
        }
        Ok(Some(match name {
            "database" | "schema" => settings.database.as_deref().map_or_else(null, text),
            "user" | "current_user" | "session_user" | "system_user" => text(&settings.user),
            "version" => match settings.variables.get("version") {
                Some(version) => crate::parse::literal_expr(version),
                None => text("8.0.11-TiDB-Tidemill"),
            },
            "connection_id" => integer(i64::try_from(settings.connection_id).unwrap_or(i64::MAX)),
            "last_insert_id" | "row_count" | "found_rows" => match settings.variables.get(name) {
                Some(value) => crate::parse::literal_expr(value),
                None => integer(0),
            },
            "tidemill_token" => settings.variables.get(name).map_or_else(null, crate::parse::literal_expr),
            "now" | "current_timestamp" | "localtime" | "localtimestamp" | "sysdate" => {
                call(&format!("$now_{}", fraction(arguments)?), Vec::new())
            }
            "utc_timestamp" => call(&format!("$utc_now_{}", fraction(arguments)?), Vec::new()),
            "curdate" | "current_date" => call("$today", Vec::new()),
            "utc_date" => call("$utc_today", Vec::new()),
            "unix_timestamp" if arguments.is_empty() => {
                if self.for_view {
                    return Err(unsupported("UNIX_TIMESTAMP() in a view"));
                }
                integer(i64::try_from(settings.now.physical_ms() / 1000).unwrap_or(i64::MAX))
            }
            "rand" | "random" | "uuid" | "uuid_short" | "curtime" | "current_time" | "utc_time" => {
                return Err(unsupported(&format!("{}()", name.to_uppercase())));
            }
            _ => return Ok(None),
        }))
    }

    fn scalar_function(&mut self, name: &str, mut arguments: Vec<Expr>) -> Result<Expr> {
        match (name, arguments.len()) {
            ("if", 3) => {
                self.predicate(&mut arguments[0])?;
                self.value(&mut arguments[1])?;
                self.value(&mut arguments[2])?;
                return Ok(call("$case", arguments));
            }
            ("nullif", 2) => {
                let mut equal = Expr::BinaryOp {
                    left: Box::new(arguments[0].clone()),
                    op: sqlparser::ast::BinaryOperator::Eq,
                    right: Box::new(take(&mut arguments[1])),
                };
                self.predicate(&mut equal)?;
                self.value(&mut arguments[0])?;
                return Ok(call("$case", vec![equal, null(), take(&mut arguments[0])]));
            }
            ("isnull", 1) => {
                let mut is_null = Expr::IsNull(Box::new(take(&mut arguments[0])));
                self.value(&mut is_null)?;
                return Ok(is_null);
            }
            ("date_add" | "adddate" | "date_sub" | "subdate", 2) => {
                return self.date_arithmetic(name, arguments);
            }
            ("timestampdiff" | "timestampadd", 3) => {
                let unit = unit_of(&arguments[0])?;
                arguments[0] = text(&unit);
            }
            ("mod", 2) => return self.plain("$mod", arguments),
            ("ifnull", 2) | ("coalesce", 1..) => return self.plain("$coalesce", arguments),
            ("position", 2) => return self.plain("locate", arguments),
            _ if OF_FIXED_COUNT.contains(&name) => return Err(wrong_count(name)),
            _ => {}
        }
        self.plain(canonical(name), arguments)
    }

    fn plain(&mut self, name: &str, mut arguments: Vec<Expr>) -> Result<Expr> {
        if !crate::functions::exists(name) {
            return Err(Error::mysql(1305, format!("FUNCTION {name} does not exist")));
        }
        crate::functions::check_arity(name, arguments.len())?;
        for argument in &mut arguments {
            self.value(argument)?;
        }
        Ok(call(name, arguments))
    }

    fn date_arithmetic(&mut self, name: &str, mut arguments: Vec<Expr>) -> Result<Expr> {
        let target = if name == "date_sub" || name == "subdate" { "$date_sub" } else { "$date_add" };
        let second = take(&mut arguments[1]);
        let (mut amount, unit) = match second {
            Expr::Interval(interval) => interval_parts(interval)?,
            days if name == "adddate" || name == "subdate" => (days, "day".to_owned()),
            _ => return Err(Error::mysql(1064, format!("{name} needs an INTERVAL"))),
        };
        self.value(&mut arguments[0])?;
        self.value(&mut amount)?;
        Ok(call(target, vec![take(&mut arguments[0]), amount, text(&unit)]))
    }

    fn aggregate(&mut self, function: &mut Function, name: &str) -> Result<()> {
        if crate::aggregates::find(name).is_none() {
            return Err(unsupported(&format!("aggregate {}()", name.to_uppercase())));
        }
        let FunctionArguments::List(list) = &function.args else {
            return Err(unsupported(&format!("{function}")));
        };
        let is_all = |one: &FunctionArg| matches!(one, FunctionArg::Unnamed(FunctionArgExpr::Wildcard));
        if name != "count" && list.args.iter().any(is_all) {
            return Err(Error::mysql(1064, format!("{}(*): only COUNT takes *", name.to_uppercase())));
        }
        if list.args.is_empty() {
            return Err(wrong_count(name));
        }
        function.name = ObjectName::from(vec![Ident::new(name)]);
        if let Some(filter) = &mut function.filter {
            self.predicate(filter)?;
        }
        self.function_arguments(function)
    }

    fn function_arguments(&mut self, function: &mut Function) -> Result<()> {
        let FunctionArguments::List(list) = &mut function.args else {
            return Err(unsupported(&format!("{function}")));
        };
        if list.duplicate_treatment == Some(DuplicateTreatment::All) {
            list.duplicate_treatment = None;
        }
        for argument in &mut list.args {
            match argument {
                // COUNT(*)
                FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => {
                    *argument = FunctionArg::Unnamed(FunctionArgExpr::Expr(integer(1)));
                }
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => self.value(expr)?,
                other => return Err(unsupported(&format!("argument {other}"))),
            }
        }
        Ok(())
    }

    fn window_function(&mut self, function: &mut Function, name: &str) -> Result<()> {
        if self.for_view {
            return Err(unsupported(&format!("window function {}() in a view", name.to_uppercase())));
        }
        function.name = ObjectName::from(vec![Ident::new(name)]);
        match &mut function.over {
            Some(WindowType::WindowSpec(spec)) => self.window_spec(spec)?,
            Some(WindowType::NamedWindow(ident)) => ident.value = ident.value.to_lowercase(),
            None => {}
        }
        self.function_arguments(function)
    }
}

fn function_name(name: &ObjectName) -> Result<String> {
    match name.0.as_slice() {
        [part] => Ok(part.to_string().trim_matches('`').to_lowercase()),
        _ => Err(Error::mysql(1305, format!("FUNCTION {name} does not exist"))),
    }
}

fn arguments(function: &mut Function) -> Result<Vec<Expr>> {
    let list = match &mut function.args {
        FunctionArguments::None => return Ok(Vec::new()),
        FunctionArguments::List(list) if list.clauses.is_empty() && list.duplicate_treatment.is_none() => {
            list
        }
        _ => return Err(unsupported(&format!("{function}"))),
    };
    let mut arguments = Vec::with_capacity(list.args.len());
    for argument in std::mem::take(&mut list.args) {
        match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => arguments.push(expr),
            other => return Err(unsupported(&format!("argument {other}"))),
        }
    }
    Ok(arguments)
}

/// Names that are known as aggregates, whether there is one or not.
pub(crate) fn is_aggregate(name: &str) -> bool {
    const NAMES: [&str; 20] = [
        "count",
        "sum",
        "avg",
        "min",
        "max",
        "group_concat",
        "bit_and",
        "bit_or",
        "bit_xor",
        "std",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "variance",
        "var_pop",
        "var_samp",
        "any_value",
        "json_arrayagg",
        "json_objectagg",
        "approx_count_distinct",
    ];
    NAMES.contains(&name)
}

/// One name for functions with several.
fn canonical(name: &str) -> &str {
    match name {
        "substr" | "mid" => "substring",
        "lcase" => "lower",
        "ucase" => "upper",
        "ceiling" => "ceil",
        "octet_length" => "length",
        "character_length" => "char_length",
        "power" => "pow",
        "day" => "dayofmonth",
        other => other,
    }
}

fn fraction(arguments: &[Expr]) -> Result<u8> {
    match arguments {
        [] => Ok(0),
        [one] => match strip(one) {
            Expr::Value(value) => match &value.value {
                Value::Number(digits, _) => digits.parse().ok().filter(|fsp| *fsp <= 6),
                _ => None,
            },
            _ => None,
        }
        .ok_or_else(|| Error::mysql(1426, format!("too big precision {one} specified, maximum is 6"))),
        _ => Err(wrong_count("now")),
    }
}

fn unit_of(expr: &Expr) -> Result<String> {
    match expr {
        Expr::Identifier(ident) => Ok(ident.value.to_lowercase()),
        other => Err(Error::mysql(1064, format!("'{other}' is not a unit of time"))),
    }
}

/// The amount and the unit (in lower case) of an INTERVAL.
pub(super) fn interval_parts(interval: Interval) -> Result<(Expr, String)> {
    let unit = match interval.leading_field {
        Some(DateTimeField::Custom(ident)) => ident.value.to_lowercase(),
        Some(field) => field.to_string().to_lowercase(),
        None => return Err(Error::mysql(1064, "INTERVAL needs a unit")),
    };
    if interval.last_field.is_some() {
        return Err(unsupported("INTERVAL ... TO ..."));
    }
    Ok((*interval.value, unit))
}

/// A call of a function.
pub(crate) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let args = arguments.into_iter().map(|expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))).collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// An integer as a literal.
pub(crate) fn integer(number: i64) -> Expr {
    Expr::Value(Value::Number(number.to_string(), false).into())
}

/// A string as a literal.
pub(crate) fn text(content: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(content.to_owned()).into())
}

fn null() -> Expr {
    Expr::Value(Value::Null.into())
}
