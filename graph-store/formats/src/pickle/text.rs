//! Escapes in the strings of protocol 0.

/// Decodes Python's escapes: of a quoted `repr` (`quoted`), which is bytes, or of raw-unicode-escape text, which is Latin-1
/// on disk and becomes UTF-8. `None` when an escape is cut or impossible.
pub(super) fn unescape(line: &[u8], quoted: bool) -> Option<Vec<u8>> {
    let inner = if quoted {
        let quote = *line.first().filter(|q| matches!(q, b'\'' | b'"'))?;
        line[1..].strip_suffix(&[quote])?
    } else {
        line
    };
    let mut out = Vec::with_capacity(inner.len());
    // A code is a byte of a quoted string and a character of a text.
    let push = |out: &mut Vec<u8>, code: u32| {
        if quoted {
            out.push(code as u8);
        } else {
            out.extend(char::from_u32(code)?.encode_utf8(&mut [0; 4]).bytes());
        }
        Some(())
    };
    let mut rest = inner;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'\\' {
            push(&mut out, byte.into())?;
            continue;
        }
        let (&escape, tail) = rest.split_first()?;
        rest = tail;
        let digits = match escape {
            b'x' if quoted => 2,
            b'u' if !quoted => 4,
            b'U' if !quoted => 8,
            _ => 0,
        };
        if digits > 0 {
            let code = std::str::from_utf8(rest.get(..digits)?).ok()?;
            push(&mut out, u32::from_str_radix(code, 16).ok()?)?;
            rest = &rest[digits..];
            continue;
        }
        match escape {
            b'n' if quoted => out.push(b'\n'),
            b't' if quoted => out.push(b'\t'),
            b'r' if quoted => out.push(b'\r'),
            b'\\' | b'\'' | b'"' if quoted => out.push(escape),
            other => out.extend([b'\\', other]),
        }
    }
    Some(out)
}
