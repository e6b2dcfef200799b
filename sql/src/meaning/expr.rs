//! Expressions as values and as conditions.

use sqlparser::ast::{
    BinaryOperator, CaseWhen, CeilFloorKind, DataType, Expr, Ident, TrimWhereField, UnaryOperator, Value,
    WindowSpec,
};
use types::{Error, Result};

use super::function::{call, integer, interval_parts, text};
use super::items::Role;
use super::{Rewrite, quoted, strip};
use crate::parse::unsupported;

impl Rewrite<'_> {
    /// Rewrites an expression that stands for a value.
    pub(crate) fn value(&mut self, expr: &mut Expr) -> Result<()> {
        if is_condition(expr) {
            if let Expr::Value(value) = strip(expr)
                && let Value::Boolean(truth) = value.value
            {
                *expr = integer(i64::from(truth));
                return Ok(());
            }
            self.predicate(expr)?;
            *expr = call("$int", vec![take(expr)]);
            return Ok(());
        }
        match expr {
            Expr::Nested(inner) => {
                self.value(inner)?;
                *expr = take(inner);
                Ok(())
            }
            Expr::Identifier(ident) => {
                if ident.value.starts_with('@') {
                    *expr = self.variable(&ident.value.to_lowercase())?;
                } else {
                    let name = ident.value.to_lowercase();
                    *expr = self.merged(&name)?.unwrap_or_else(|| Expr::Identifier(quoted(&name)));
                }
                Ok(())
            }
            Expr::CompoundIdentifier(parts) => self.compound(&parts.clone(), expr),
            Expr::Value(_) => self.literal(expr),
            Expr::Prefixed { value, .. } => {
                self.value(value)?;
                *expr = take(value);
                Ok(())
            }
            Expr::Subquery(query) => self.subquery(query, Role::default()),
            Expr::Function(_) => self.function(expr),
            Expr::Tuple(_) => Err(Error::mysql(1241, "operand should contain 1 column(s)")),
            Expr::BinaryOp { .. } | Expr::UnaryOp { .. } => self.operator(expr),
            _ => self.special(expr),
        }
    }

    /// Rewrites an expression that stands for a condition.
    pub(crate) fn predicate(&mut self, expr: &mut Expr) -> Result<()> {
        if !is_condition(expr) {
            self.value(expr)?;
            *expr = call("$truth", vec![take(expr)]);
            return Ok(());
        }
        match expr {
            Expr::Nested(inner) => {
                self.predicate(inner)?;
                *expr = take(inner);
                Ok(())
            }
            Expr::Value(_) => Ok(()),
            Expr::BinaryOp { .. } => self.condition_operator(expr),
            Expr::UnaryOp { op, expr: inner } => {
                *op = UnaryOperator::Not;
                self.predicate(inner)
            }
            Expr::IsTrue(inner)
            | Expr::IsNotTrue(inner)
            | Expr::IsFalse(inner)
            | Expr::IsNotFalse(inner)
            | Expr::IsUnknown(inner)
            | Expr::IsNotUnknown(inner) => self.predicate(inner),
            Expr::IsNull(inner) | Expr::IsNotNull(inner) => self.value(inner),
            Expr::Exists { subquery, .. } => self.subquery(subquery, Role::Unnamed),
            _ => self.special_condition(expr),
        }
    }

    fn special_condition(&mut self, expr: &mut Expr) -> Result<()> {
        match expr {
            Expr::InSubquery { expr: left, subquery, .. } => {
                if matches!(strip(left), Expr::Tuple(_)) {
                    return Err(unsupported("(a, b) IN (SELECT ...)"));
                }
                self.value(left)?;
                self.subquery(subquery, Role::default())
            }
            Expr::InList { expr: left, list, negated } => {
                let negated = *negated;
                if matches!(strip(left), Expr::Tuple(_)) {
                    let left = take(left);
                    let rows = std::mem::take(list);
                    *expr = tuples_in(&left, rows)?;
                    self.predicate(expr)?;
                } else {
                    self.value(left)?;
                    let mut arguments = vec![take(left)];
                    for mut item in std::mem::take(list) {
                        self.value(&mut item)?;
                        arguments.push(item);
                    }
                    *expr = call("$in", arguments);
                }
                negate(expr, negated);
                Ok(())
            }
            Expr::Between { expr: value, low, high, negated } => {
                let negated = *negated;
                let value = take(value);
                let above = binary(value.clone(), BinaryOperator::GtEq, take(low));
                let below = binary(value, BinaryOperator::LtEq, take(high));
                *expr = binary(above, BinaryOperator::And, below);
                self.predicate(expr)?;
                negate(expr, negated);
                Ok(())
            }
            Expr::Like { .. } | Expr::RLike { .. } => self.like(expr),
            Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => {
                let Expr::Subquery(subquery) = take(right) else {
                    return Err(unsupported("= ANY of a list"));
                };
                *expr = Expr::InSubquery { expr: Box::new(take(left)), subquery, negated: false };
                self.predicate(expr)
            }
            Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => {
                let Expr::Subquery(subquery) = take(right) else {
                    return Err(unsupported("<> ALL of a list"));
                };
                *expr = Expr::InSubquery { expr: Box::new(take(left)), subquery, negated: true };
                self.predicate(expr)
            }
            other => Err(unsupported(&format!("{other}"))),
        }
    }

    fn like(&mut self, expr: &mut Expr) -> Result<()> {
        let (mut arguments, name, negated) = match expr {
            Expr::Like { negated, any: false, expr: value, pattern, escape_char } => {
                let mut arguments = vec![take(value), take(pattern)];
                arguments.extend(escape_char.take().map(Expr::Value));
                (arguments, "$like", *negated)
            }
            Expr::RLike { negated, expr: value, pattern, .. } => {
                (vec![take(value), take(pattern)], "$regexp", *negated)
            }
            other => return Err(unsupported(&format!("{other}"))),
        };
        for argument in &mut arguments {
            self.value(argument)?;
        }
        *expr = call(name, arguments);
        negate(expr, negated);
        Ok(())
    }

    fn condition_operator(&mut self, expr: &mut Expr) -> Result<()> {
        let Expr::BinaryOp { left, op, right } = expr else { return Ok(()) };
        match op {
            BinaryOperator::And | BinaryOperator::Or | BinaryOperator::StringConcat => {
                if *op == BinaryOperator::StringConcat {
                    *op = BinaryOperator::Or;
                }
                self.predicate(left)?;
                self.predicate(right)
            }
            BinaryOperator::Xor => {
                self.predicate(left)?;
                self.predicate(right)?;
                *expr = call("$xor", vec![take(left), take(right)]);
                Ok(())
            }
            _ => {
                if let (Expr::Tuple(lefts), Expr::Tuple(rights)) = (strip(left), strip(right)) {
                    *expr = compare_tuples(op, lefts, rights)?;
                    return self.predicate(expr);
                }
                self.value(left)?;
                self.value(right)
            }
        }
    }

    /// Arithmetic and bits.
    fn operator(&mut self, expr: &mut Expr) -> Result<()> {
        match expr {
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } => {
                if is_number(inner) {
                    // The planner reads the sign with the digits, so the least BIGINT is one.
                    if let Expr::Value(value) = strip(inner)
                        && let Value::Number(digits, _) = &value.value
                        && digits.contains(['e', 'E'])
                    {
                        *expr = call("$double", vec![text(&format!("-{digits}"))]);
                    }
                    return Ok(());
                }
                self.value(inner)?;
                *expr = call("$neg", vec![take(inner)]);
                Ok(())
            }
            Expr::UnaryOp { op: UnaryOperator::Plus, expr: inner } => {
                self.value(inner)?;
                *expr = take(inner);
                Ok(())
            }
            Expr::UnaryOp { op: UnaryOperator::BitwiseNot, expr: inner } => {
                self.value(inner)?;
                *expr = call("$bit_not", vec![take(inner)]);
                Ok(())
            }
            Expr::BinaryOp { left, op, right } => {
                let is_interval = |side: &Expr| matches!(strip(side), Expr::Interval(_));
                if is_interval(left) || is_interval(right) {
                    return self.interval_arithmetic(expr);
                }
                self.value(left)?;
                self.value(right)?;
                let name = operator_function(op)?;
                *expr = call(name, vec![take(left), take(right)]);
                Ok(())
            }
            other => Err(unsupported(&format!("{other}"))),
        }
    }

    fn interval_arithmetic(&mut self, expr: &mut Expr) -> Result<()> {
        let Expr::BinaryOp { left, op, right } = expr else { return Ok(()) };
        let name = match op {
            BinaryOperator::Plus => "$date_add",
            BinaryOperator::Minus => "$date_sub",
            _ => return Err(unsupported(&format!("{op} with INTERVAL"))),
        };
        let (mut date, interval) = match (take(left), take(right)) {
            (date, Expr::Interval(interval)) => (date, interval),
            (Expr::Interval(interval), date) if name == "$date_add" => (date, interval),
            _ => return Err(unsupported("this use of INTERVAL")),
        };
        self.value(&mut date)?;
        let (mut amount, unit) = interval_parts(interval)?;
        self.value(&mut amount)?;
        *expr = call(name, vec![date, amount, text(&unit)]);
        Ok(())
    }

    /// Constructs with a syntax of their own.
    fn special(&mut self, expr: &mut Expr) -> Result<()> {
        let (name, mut arguments) = match expr {
            Expr::Case { operand, conditions, else_result, .. } => {
                let operand = operand.take().map(|operand| *operand);
                let conditions = std::mem::take(conditions);
                let else_result = else_result.take().map(|result| *result);
                return self.case(expr, operand, conditions, else_result);
            }
            Expr::Cast { expr: inner, data_type, .. } => (cast_name(data_type)?, vec![take(inner)]),
            Expr::Convert { expr: inner, data_type: Some(data_type), .. } => {
                (cast_name(data_type)?, vec![take(inner)])
            }
            Expr::Convert { expr: inner, .. } => ("$cast_char".to_owned(), vec![take(inner)]),
            Expr::TypedString(typed) => {
                let literal = Expr::Value(typed.value.clone());
                (typed_name(&typed.data_type)?, vec![literal])
            }
            Expr::Extract { field, expr: inner, .. } => {
                let unit = field.to_string().to_lowercase();
                let mut inner = take(inner);
                self.value(&mut inner)?;
                *expr = call("$extract", vec![text(&unit), inner]);
                return Ok(());
            }
            Expr::Ceil { expr: inner, field: CeilFloorKind::DateTimeField(_) } => {
                ("ceil".to_owned(), vec![take(inner)])
            }
            Expr::Floor { expr: inner, field: CeilFloorKind::DateTimeField(_) } => {
                ("floor".to_owned(), vec![take(inner)])
            }
            Expr::Position { expr: inner, r#in } => ("locate".to_owned(), vec![take(inner), take(r#in)]),
            Expr::Substring { expr: inner, substring_from, substring_for, .. } => {
                let mut arguments = vec![take(inner)];
                arguments.push(substring_from.take().map_or_else(|| integer(1), |from| *from));
                arguments.extend(substring_for.take().map(|length| *length));
                ("substring".to_owned(), arguments)
            }
            Expr::Trim { trim_where, trim_what, expr: inner, trim_characters: None } => {
                let name = match trim_where {
                    Some(TrimWhereField::Leading) => "$trim_leading",
                    Some(TrimWhereField::Trailing) => "$trim_trailing",
                    _ => "$trim_both",
                };
                let what = trim_what.take().map_or_else(|| text(" "), |what| *what);
                (name.to_owned(), vec![take(inner), what])
            }
            Expr::Collate { expr: inner, collation } => {
                let collation = collation.to_string().to_lowercase();
                match collation.as_str() {
                    "utf8mb4_bin" => {
                        self.value(inner)?;
                        *expr = take(inner);
                        return Ok(());
                    }
                    "binary" => ("$cast_binary".to_owned(), vec![take(inner)]),
                    _ => return Err(unsupported(&format!("COLLATE {collation}"))),
                }
            }
            other => return Err(unsupported(&format!("{other}"))),
        };
        for argument in &mut arguments {
            self.value(argument)?;
        }
        *expr = call(&name, arguments);
        Ok(())
    }

    fn case(
        &mut self,
        expr: &mut Expr,
        operand: Option<Expr>,
        conditions: Vec<CaseWhen>,
        else_result: Option<Expr>,
    ) -> Result<()> {
        let mut arguments = Vec::with_capacity(conditions.len() * 2 + 1);
        for CaseWhen { mut condition, mut result } in conditions {
            if let Some(operand) = &operand {
                condition = binary(operand.clone(), BinaryOperator::Eq, condition);
            }
            self.predicate(&mut condition)?;
            self.value(&mut result)?;
            arguments.push(condition);
            arguments.push(result);
        }
        if let Some(mut result) = else_result {
            self.value(&mut result)?;
            arguments.push(result);
        }
        *expr = call("$case", arguments);
        Ok(())
    }

    fn literal(&mut self, expr: &mut Expr) -> Result<()> {
        let Expr::Value(value) = expr else { return Ok(()) };
        match &value.value {
            Value::Number(digits, _) if digits.contains(['e', 'E']) => {
                *expr = call("$double", vec![text(digits)]);
                Ok(())
            }
            Value::Number(digits, _) if significant_digits(digits) > DIGITS_MAX => {
                let shown: String = digits.chars().take(DIGITS_MAX).collect();
                Err(Error::mysql(1690, format!("DECIMAL value is out of range in '{shown}...'")))
            }
            Value::DoubleQuotedString(content) => {
                if self.settings.sql_mode.contains("ANSI_QUOTES") {
                    *expr = Expr::Identifier(quoted(&content.to_lowercase()));
                } else {
                    *expr = text(&content.clone());
                }
                Ok(())
            }
            Value::NationalStringLiteral(content) => {
                *expr = text(&content.clone());
                Ok(())
            }
            Value::Placeholder(_) => Err(Error::mysql(1210, "a parameter has no value")),
            Value::Boolean(truth) => {
                *expr = integer(i64::from(*truth));
                Ok(())
            }
            Value::Number(..) | Value::SingleQuotedString(_) | Value::HexStringLiteral(_) | Value::Null => {
                Ok(())
            }
            other => Err(unsupported(&format!("literal {other}"))),
        }
    }

    /// `t.c`, `db.t.c` (the alias of a table is its name), `@@session.x`.
    fn compound(&mut self, parts: &[Ident], expr: &mut Expr) -> Result<()> {
        if let Some(scope) = parts[0].value.strip_prefix("@@") {
            if parts.len() != 2
                || !["global", "session", "local"].iter().any(|name| scope.eq_ignore_ascii_case(name))
            {
                return Err(Error::mysql(1193, format!("unknown system variable '{expr}'")));
            }
            *expr = self.variable(&format!("@@{}", parts[1].value.to_lowercase()))?;
            return Ok(());
        }
        let tail = parts.len().saturating_sub(2);
        let parts = parts[tail..].iter().map(|part| quoted(&part.value.to_lowercase())).collect();
        *expr = Expr::CompoundIdentifier(parts);
        Ok(())
    }

    fn variable(&self, name: &str) -> Result<Expr> {
        if self.for_view {
            return Err(unsupported(&format!("variable {name} in a view")));
        }
        let key = name.strip_prefix("@@").unwrap_or(name);
        match self.settings.variables.get(key) {
            Some(literal) => Ok(crate::parse::literal_expr(literal)),
            None if name.starts_with("@@") => {
                Err(Error::mysql(1193, format!("unknown system variable '{key}'")))
            }
            None => Ok(Expr::Value(Value::Null.into())),
        }
        .and_then(|mut expr| {
            // The value is written as any literal is.
            let mut inner = Rewrite::new(self.settings, false);
            if !matches!(expr, Expr::Value(_)) {
                inner.value(&mut expr)?;
            }
            Ok(expr)
        })
    }

    pub(super) fn window_spec(&mut self, spec: &mut WindowSpec) -> Result<()> {
        for expr in &mut spec.partition_by {
            self.value(expr)?;
        }
        for order in &mut spec.order_by {
            self.value(&mut order.expr)?;
        }
        Ok(())
    }
}

/// Takes an expression out of its place, leaving NULL.
pub(super) fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::Value(Value::Null.into()))
}

/// Whether an expression is a condition by its form: its value is true, false or NULL.
fn is_condition(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_condition(inner),
        Expr::Value(value) => matches!(value.value, Value::Boolean(_)),
        Expr::BinaryOp { op, .. } => matches!(
            op,
            BinaryOperator::And
                | BinaryOperator::Or
                | BinaryOperator::Xor
                | BinaryOperator::StringConcat
                | BinaryOperator::Eq
                | BinaryOperator::NotEq
                | BinaryOperator::Lt
                | BinaryOperator::LtEq
                | BinaryOperator::Gt
                | BinaryOperator::GtEq
                | BinaryOperator::Spaceship
        ),
        Expr::UnaryOp { op, .. } => matches!(op, UnaryOperator::Not | UnaryOperator::BangNot),
        Expr::IsTrue(_)
        | Expr::IsNotTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotUnknown(_)
        | Expr::InList { .. }
        | Expr::InSubquery { .. }
        | Expr::Between { .. }
        | Expr::Like { .. }
        | Expr::ILike { .. }
        | Expr::RLike { .. }
        | Expr::Exists { .. }
        | Expr::AnyOp { .. }
        | Expr::AllOp { .. } => true,
        _ => false,
    }
}

/// The most digits that a decimal has.
const DIGITS_MAX: usize = 65;

/// The digits of a number that count: leading zeros do not.
fn significant_digits(number: &str) -> usize {
    number.trim_start_matches(['0', '.']).chars().filter(char::is_ascii_digit).count()
}

fn is_number(expr: &Expr) -> bool {
    matches!(strip(expr), Expr::Value(value) if matches!(value.value, Value::Number(..)))
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn negate(expr: &mut Expr, negated: bool) {
    if negated {
        *expr = Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(take(expr)) };
    }
}

fn compare_tuples(op: &BinaryOperator, lefts: &[Expr], rights: &[Expr]) -> Result<Expr> {
    if lefts.len() != rights.len() || lefts.is_empty() {
        return Err(Error::mysql(1241, format!("operand should contain {} column(s)", lefts.len())));
    }
    let glue = match op {
        BinaryOperator::Eq | BinaryOperator::Spaceship => BinaryOperator::And,
        BinaryOperator::NotEq => BinaryOperator::Or,
        _ => return Err(unsupported(&format!("{op} between rows"))),
    };
    let parts = lefts.iter().zip(rights).map(|(left, right)| binary(left.clone(), op.clone(), right.clone()));
    parts.reduce(|all, part| binary(all, glue.clone(), part)).ok_or_else(|| unsupported("an empty row"))
}

fn tuples_in(left: &Expr, rows: Vec<Expr>) -> Result<Expr> {
    let mut any = None;
    for row in rows {
        let (Expr::Tuple(lefts), Expr::Tuple(rights)) = (strip(left), strip(&row)) else {
            return Err(Error::mysql(1241, "operand should contain as many columns as the row"));
        };
        let equal = compare_tuples(&BinaryOperator::Eq, lefts, rights)?;
        any = Some(match any {
            None => equal,
            Some(any) => binary(any, BinaryOperator::Or, equal),
        });
    }
    any.ok_or_else(|| Error::mysql(1064, "IN needs at least one value"))
}

fn operator_function(op: &BinaryOperator) -> Result<&'static str> {
    Ok(match op {
        BinaryOperator::Plus => "$add",
        BinaryOperator::Minus => "$sub",
        BinaryOperator::Multiply => "$mul",
        BinaryOperator::Divide => "$div",
        BinaryOperator::MyIntegerDivide => "$int_div",
        BinaryOperator::Modulo => "$mod",
        BinaryOperator::BitwiseAnd => "$bit_and",
        BinaryOperator::BitwiseOr => "$bit_or",
        BinaryOperator::BitwiseXor => "$bit_xor",
        BinaryOperator::PGBitwiseShiftLeft => "$shift_left",
        BinaryOperator::PGBitwiseShiftRight => "$shift_right",
        other => return Err(unsupported(&format!("operator {other}"))),
    })
}

/// The function of a CAST; the target is part of its name.
fn cast_name(data_type: &DataType) -> Result<String> {
    Ok(match data_type {
        DataType::Signed
        | DataType::SignedInteger
        | DataType::BigInt(_)
        | DataType::Int(_)
        | DataType::Integer(_) => "$cast_signed".to_owned(),
        DataType::Unsigned | DataType::UnsignedInteger | DataType::BigIntUnsigned(_) => {
            "$cast_unsigned".to_owned()
        }
        DataType::Char(None) | DataType::Varchar(None) | DataType::Character(None) | DataType::Text => {
            "$cast_char".to_owned()
        }
        DataType::Binary(None) | DataType::Varbinary(None) => "$cast_binary".to_owned(),
        DataType::Date => "$cast_date".to_owned(),
        DataType::Datetime(fsp) | DataType::Timestamp(fsp, _) => {
            format!("$cast_datetime_{}", fsp.unwrap_or(0))
        }
        DataType::Double(_) | DataType::DoublePrecision | DataType::Real => "$cast_double".to_owned(),
        DataType::Float(_) => "$cast_float".to_owned(),
        DataType::Decimal(info) | DataType::Dec(info) | DataType::Numeric(info) => {
            match crate::parse::decimal_type(info)? {
                tidb::ColumnType::Decimal { precision, scale } => {
                    format!("$cast_decimal_{precision}_{scale}")
                }
                _ => return Err(unsupported(&format!("CAST AS {data_type}"))),
            }
        }
        DataType::Char(Some(sqlparser::ast::CharacterLength::IntegerLength { length, .. })) => {
            format!("$cast_char_{length}")
        }
        other => return Err(unsupported(&format!("CAST AS {other}"))),
    })
}

fn typed_name(data_type: &DataType) -> Result<String> {
    Ok(match data_type {
        DataType::Date => "$date_literal".to_owned(),
        DataType::Datetime(_) | DataType::Timestamp(..) => "$datetime_literal".to_owned(),
        DataType::DoublePrecision => "$double".to_owned(),
        other => return Err(unsupported(&format!("{other} literals"))),
    })
}
