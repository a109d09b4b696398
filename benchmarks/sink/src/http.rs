//! HTTP/1.1 server, one thread per connection.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;

use crate::queries::{self, Parameters};
use crate::{blocks, counts, native, rowbinary};

struct Request {
    path: String,
    parameters: Parameters,
    is_lz4: bool,
    body: Vec<u8>,
}

impl Request {
    fn parameter(&self, name: &str) -> Option<&str> {
        let parameter = self.parameters.iter().find(|(key, _)| key == name);
        parameter.map(|(_, value)| value.as_str())
    }
}

/// Answers requests until the client closes the connection.
pub fn serve(connection: TcpStream) -> Result<()> {
    // Answers are small: with Nagle's algorithm they could wait for the client's delayed acknowledgement.
    connection.set_nodelay(true)?;
    let (mut reader, mut writer) = (BufReader::new(connection.try_clone()?), connection);
    while let Some(request) = read(&mut reader)? {
        let (body, read_rows) = answer(&request)?;
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-ClickHouse-Format: Native\r\nX-ClickHouse-Summary: {{\"read_rows\":\"{read_rows}\"}}\r\nX-ClickHouse-Timezone: UTC\r\n\r\n",
            body.len()
        );
        // One write, so that head and body usually leave in one packet.
        writer.write_all(&[head.as_bytes(), &body].concat())?;
    }
    Ok(())
}

fn answer(request: &Request) -> Result<(Vec<u8>, usize)> {
    if request.path == "/_counts" {
        return Ok((counts::json().into_bytes(), 0));
    }
    let query = request.parameter("query").unwrap_or_default();
    if query.starts_with("INSERT") && query.contains("FORMAT") && !request.body.is_empty() {
        return insert(request, query);
    }
    let text = String::from_utf8_lossy(&request.body);
    // ClickHouse accepts the statement in the URL or in the body, and clients differ.
    let sql = if query.is_empty() { &text } else { query };
    let wants_native =
        sql.contains("FORMAT Native") || request.parameter("default_format") == Some("Native");
    Ok((queries::answer(sql, &request.parameters, wants_native), 0))
}

fn insert(request: &Request, query: &str) -> Result<(Vec<u8>, usize)> {
    let bytes = if request.is_lz4 {
        blocks::unpack_frames(&request.body)?
    } else if request.parameter("decompress") == Some("1") {
        blocks::unpack_server_blocks(&request.body)?
    } else {
        request.body.clone()
    };
    let rows = if query.contains("FORMAT RowBinary") {
        rowbinary::rows(&bytes)?
    } else {
        native::blocks(&bytes)?
    };
    let count = rows.count;
    counts::record(rows, request.body.len());
    Ok((Vec::new(), count))
}

fn read(reader: &mut BufReader<TcpStream>) -> Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let target = line.split(' ').nth(1).unwrap_or("/").to_owned();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let (mut length, mut is_chunked, mut is_lz4) = (0, false, false);
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        match (name.to_ascii_lowercase().as_str(), value.trim()) {
            ("content-length", digits) => length = digits.parse().map_err(Error::other)?,
            ("transfer-encoding", coding) => is_chunked = coding == "chunked",
            ("content-encoding", coding) => is_lz4 = coding == "lz4",
            _ => {}
        }
    }
    let body = if is_chunked {
        chunks(reader)?
    } else {
        exactly(reader, length)?
    };
    Ok(Some(Request {
        path: path.to_owned(),
        parameters: parameters(query),
        is_lz4,
        body,
    }))
}

fn exactly(reader: &mut BufReader<TcpStream>, length: usize) -> Result<Vec<u8>> {
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}

fn chunks(reader: &mut BufReader<TcpStream>) -> Result<Vec<u8>> {
    let (mut body, mut line) = (Vec::new(), String::new());
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim(), 16)
            .map_err(|reason| Error::new(ErrorKind::InvalidData, reason))?;
        body.extend(exactly(reader, length)?);
        // A line break ends each chunk, also the last.
        exactly(reader, 2)?;
        if length == 0 {
            return Ok(body);
        }
    }
}

fn parameters(query: &str) -> Parameters {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (unescaped(name), unescaped(value)))
        .collect()
}

fn unescaped(text: &str) -> String {
    let (mut out, mut bytes) = (Vec::new(), text.bytes());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| {
                    byte.and_then(|byte| char::from(byte).to_digit(16))
                        .unwrap_or(0)
                };
                let value = digit(bytes.next()) * 16 + digit(bytes.next());
                u8::try_from(value).unwrap_or_default()
            }
            _ => byte,
        });
    }
    String::from_utf8_lossy(&out).into_owned()
}
