//! Server of the native protocol, one thread per connection, at an old protocol revision with few optional
//! fields.

use std::io::{BufReader, ErrorKind, Read, Result, Write};
use std::net::TcpStream;

use crate::counts::{self, Rows};
use crate::cursor::{Cursor, Flaw, put_text, put_varint};
use crate::rowbinary::COLUMNS;
use crate::{blocks, native};

const REVISION: usize = 54_440;
const DATA: u8 = 1;
const PONG: u8 = 4;
const END_OF_STREAM: u8 = 5;
/// Block info before the columns of a block: two numbered fields and an end marker.
const BLOCK_INFO: [u8; 8] = [1, 0, 2, 0xff, 0xff, 0xff, 0xff, 0];

struct Client {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    is_packed: bool,
    bytes: usize,
}

/// Answers requests until the client closes the connection.
pub fn serve(connection: TcpStream) -> Result<()> {
    connection.set_nodelay(true)?;
    let mut client = Client {
        reader: BufReader::with_capacity(1 << 18, connection.try_clone()?),
        writer: connection,
        is_packed: false,
        bytes: 0,
    };
    match client.run() {
        // clients close the connection without a last packet
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(()),
        other => other,
    }
}

impl Client {
    fn run(&mut self) -> Result<()> {
        loop {
            match self.byte()? {
                0 => self.hello()?,
                1 => self.query()?,
                4 => self.writer.write_all(&[PONG])?,
                // cancel: the query was answered in full before this packet was read
                3 => {}
                other => return Err(Flaw::Invalid(format!("unknown packet type {other}")).into()),
            }
        }
    }

    fn hello(&mut self) -> Result<()> {
        self.text()?;
        for _ in 0..3 {
            self.varint()?;
        }
        for _ in 0..3 {
            self.text()?;
        }
        let mut out = vec![0];
        put_text(&mut out, "ClickHouse");
        for number in [26, 9, REVISION] {
            put_varint(&mut out, number);
        }
        put_text(&mut out, "UTC");
        put_text(&mut out, "sink");
        put_varint(&mut out, 1);
        self.writer.write_all(&out)
    }

    fn query(&mut self) -> Result<()> {
        self.text()?;
        self.client_info()?;
        while !self.text()?.is_empty() {
            self.varint()?;
            self.text()?;
        }
        self.byte()?;
        self.is_packed = self.byte()? != 0;
        let sql = self.text()?;
        // Clients end every query with an empty block, in place of external tables.
        self.data(&mut Rows::default())?;
        if sql.trim_start().starts_with("INSERT") {
            self.insert()?;
        }
        self.writer.write_all(&[END_OF_STREAM])
    }

    fn client_info(&mut self) -> Result<()> {
        self.byte()?;
        for _ in 0..3 {
            self.text()?;
        }
        self.byte()?;
        for _ in 0..3 {
            self.text()?;
        }
        for _ in 0..3 {
            self.varint()?;
        }
        self.text()?;
        self.varint().map(|_| ())
    }

    /// Sends the column names, then receives blocks until an empty block.
    fn insert(&mut self) -> Result<()> {
        let mut block = BLOCK_INFO.to_vec();
        put_varint(&mut block, COLUMNS.len());
        put_varint(&mut block, 0);
        for (name, kind) in COLUMNS {
            put_text(&mut block, name);
            put_text(&mut block, kind);
        }
        let header = if self.is_packed {
            blocks::wrapped(&block)
        } else {
            block
        };
        self.writer
            .write_all(&[&[DATA, 0], header.as_slice()].concat())?;
        let mut rows = Rows::default();
        self.bytes = 0;
        while self.data(&mut rows)? > 0 {}
        counts::record(rows, self.bytes);
        Ok(())
    }

    /// Receives one data packet. Returns its row count.
    fn data(&mut self, rows: &mut Rows) -> Result<usize> {
        let packet = self.byte()?;
        if packet != 2 {
            return Err(Flaw::Invalid(format!("packet type {packet} instead of data")).into());
        }
        self.text()?;
        let mut bytes = Vec::new();
        loop {
            // Only decoding finds the end of a block, so it starts again after each read.
            self.read_more(&mut bytes)?;
            let mut cursor = Cursor { rest: &bytes };
            let decoded = cursor
                .take(BLOCK_INFO.len())
                .and_then(|_| native::block(&mut cursor, rows));
            match decoded {
                Ok(count) => return Ok(count),
                Err(Flaw::Truncated) => {}
                Err(flaw) => return Err(flaw.into()),
            }
        }
    }

    /// Reads one compressed block. Uncompressed blocks have no length, so they are read byte by byte.
    fn read_more(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        if !self.is_packed {
            bytes.push(self.byte()?);
            return Ok(());
        }
        let mut lead = [0; blocks::LEAD_BYTES];
        self.reader.read_exact(&mut lead)?;
        let mut packed = vec![0; blocks::packed_size(&lead)?];
        self.reader.read_exact(&mut packed)?;
        self.bytes += packed.len();
        Ok(blocks::unpack_server_block(&lead, &packed, bytes)?)
    }

    fn byte(&mut self) -> Result<u8> {
        let mut byte = [0];
        self.reader.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    fn varint(&mut self) -> Result<usize> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        Ok(value)
    }

    fn text(&mut self) -> Result<String> {
        let mut bytes = vec![0; self.varint()?];
        self.reader.read_exact(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
