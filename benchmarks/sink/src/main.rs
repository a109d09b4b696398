//! A ClickHouse that forgets: it takes what receivers insert, decodes every row, and keeps counts only.
//!
//! Speaks HTTP (Native as LZ4 frames, `RowBinary` in the server's own compression) and the native protocol.
//! Prints its two ports, serves until its standard input ends. `GET /_counts` over HTTP tells what it took.

mod blocks;
mod counts;
mod cursor;
mod http;
mod kinds;
mod native;
mod questions;
mod rowbinary;
mod tcp;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

/// What connections are handed to.
type Serve = fn(TcpStream) -> std::io::Result<()>;

fn main() -> std::io::Result<()> {
    let (http, tcp) = (listen(http::serve)?, listen(tcp::serve)?);
    println!("{http} {tcp}");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn listen(serve: Serve) -> std::io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            thread::spawn(move || {
                if let Err(error) = serve(connection) {
                    eprintln!("sink: {error}");
                }
            });
        }
    });
    Ok(port)
}
