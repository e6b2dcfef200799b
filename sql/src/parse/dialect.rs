//! MySQL's dialect as sqlparser has it, with what it gets wrong put right.
//!
//! Precedence follows MySQL's table: `||` is OR, XOR stands between OR and AND, `^` binds closest, shifts
//! bind closer than `&`, and DIV and MOD are as `*`; `!`, `-` and `~` bind closer still. Table versions are on (`AS OF TIMESTAMP` reaches the
//! parser as `FOR SYSTEM_TIME AS OF`).

use std::any::TypeId;

use sqlparser::ast::{BinaryOperator, DateTimeField, Expr, Ident, Interval, Statement, UnaryOperator};
use sqlparser::dialect::{Dialect, MySqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use crate::functions;

/// The dialect of every statement.
#[derive(Debug)]
pub(crate) struct TidemillDialect;

const MYSQL: MySqlDialect = MySqlDialect {};

const XOR: u8 = 7;
const SHIFT: u8 = 26;
const BIT_XOR: u8 = 45;
const PREFIX: u8 = 46;

macro_rules! as_mysql {
    ($($name:ident),* $(,)?) => {
        $(fn $name(&self) -> bool { MYSQL.$name() })*
    };
}

impl Dialect for TidemillDialect {
    fn dialect(&self) -> TypeId {
        // The parser asks "is it MySQL?" in many places.
        TypeId::of::<MySqlDialect>()
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        MYSQL.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        MYSQL.is_identifier_part(ch)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        MYSQL.is_delimited_identifier_start(ch)
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        MYSQL.identifier_quote_style(identifier)
    }

    as_mysql!(
        supports_string_literal_backslash_escape,
        supports_string_literal_concatenation,
        ignores_wildcard_escapes,
        supports_numeric_prefix,
        supports_bitwise_shift_operators,
        supports_multiline_comment_hints,
        require_interval_qualifier,
        supports_limit_comma,
        supports_create_table_select,
        supports_insert_set,
        supports_user_host_grantee,
        supports_table_hints,
        requires_single_line_comment_whitespace,
        supports_match_against,
        supports_select_modifiers,
        supports_set_names,
        supports_comma_separated_set_assignments,
        supports_update_order_by,
        supports_data_type_signed_suffix,
        supports_cross_join_constraint,
        supports_double_ampersand_operator,
        supports_binary_kw_as_cast,
        supports_comment_optimizer_hint,
        supports_constraint_keyword_without_name,
        supports_key_column_option,
    );

    fn supports_bang_not_operator(&self) -> bool {
        true
    }

    fn allow_extract_custom(&self) -> bool {
        true
    }

    fn supports_table_versioning(&self) -> bool {
        true
    }

    fn supports_group_by_with_modifier(&self) -> bool {
        true
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        let precedence = match &parser.peek_token_ref().token {
            Token::StringConcat => self.prec_value(Precedence::Or),
            Token::Caret => BIT_XOR,
            Token::ShiftLeft | Token::ShiftRight => SHIFT,
            Token::Word(word) if word.quote_style.is_none() => {
                if word.keyword == Keyword::XOR {
                    XOR
                } else if word.value.eq_ignore_ascii_case("mod") {
                    self.prec_value(Precedence::MulDivModOp)
                } else {
                    return None;
                }
            }
            _ => return None,
        };
        Some(Ok(precedence))
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        if let Token::Word(word) = &parser.peek_token_ref().token
            && word.keyword == Keyword::INTERVAL
            && word.quote_style.is_none()
        {
            return has_composite_unit(parser).then(|| composite_interval(parser));
        }
        let (operator, n_times) = match &parser.peek_token_ref().token {
            Token::ExclamationMark => (UnaryOperator::BangNot, 1),
            Token::DoubleExclamationMark => (UnaryOperator::BangNot, 2),
            Token::Minus => (UnaryOperator::Minus, 1),
            Token::Plus => (UnaryOperator::Plus, 1),
            Token::Tilde => (UnaryOperator::BitwiseNot, 1),
            _ => return None,
        };
        parser.advance_token();
        let operand = parser.parse_subexpr(PREFIX);
        let apply = |operand: Expr| Expr::UnaryOp { op: operator, expr: Box::new(operand) };
        Some(operand.map(|operand| (0..n_times).fold(operand, |operand, _| apply(operand))))
    }

    fn parse_infix(
        &self,
        parser: &mut Parser,
        expr: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        let op = match &parser.peek_token_ref().token {
            Token::Word(word) if word.quote_style.is_none() => {
                if word.keyword == Keyword::DIV {
                    BinaryOperator::MyIntegerDivide
                } else if word.value.eq_ignore_ascii_case("mod") {
                    BinaryOperator::Modulo
                } else {
                    return None;
                }
            }
            _ => return None,
        };
        parser.advance_token();
        let right = parser.parse_subexpr(precedence);
        Some(right.map(|right| Expr::BinaryOp { left: Box::new(expr.clone()), op, right: Box::new(right) }))
    }

    fn parse_statement(&self, parser: &mut Parser) -> Option<Result<Statement, ParserError>> {
        MYSQL.parse_statement(parser)
    }

    fn is_table_factor_alias(&self, explicit: bool, keyword: &Keyword, parser: &mut Parser) -> bool {
        MYSQL.is_table_factor_alias(explicit, keyword, parser)
    }
}

/// How far a unit is looked for behind INTERVAL.
const UNIT_TOKENS_MAX: usize = 64;

/// A unit of more than one part, which the parser does not know.
fn composite_unit(token: &Token) -> Option<&str> {
    let Token::Word(word) = token else { return None };
    let is_unit =
        word.quote_style.is_none() && functions::is_composite_unit(&word.value.to_ascii_lowercase());
    is_unit.then_some(&word.value)
}

/// Whether the interval that the parser stands before ends in such a unit.
fn has_composite_unit(parser: &Parser) -> bool {
    let mut depth = 0_usize;
    for at in 1..=UNIT_TOKENS_MAX {
        let token = &parser.peek_nth_token_ref(at).token;
        match token {
            Token::EOF | Token::SemiColon => return false,
            Token::Comma | Token::RParen if depth == 0 => return false,
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ if depth == 0 && composite_unit(token).is_some() => return true,
            _ => {}
        }
    }
    false
}

fn composite_interval(parser: &mut Parser) -> Result<Expr, ParserError> {
    parser.advance_token();
    let value = parser.parse_expr()?;
    let token = parser.next_token();
    let Some(unit) = composite_unit(&token.token) else {
        return parser.expected("a unit of INTERVAL", token);
    };
    Ok(Expr::Interval(Interval {
        value: Box::new(value),
        leading_field: Some(DateTimeField::Custom(Ident::new(unit))),
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    }))
}
