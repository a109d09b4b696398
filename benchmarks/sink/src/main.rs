//! Benchmark sink: accepts ClickHouse INSERTs, decodes every row, and stores only counts.
//!
//! Speaks HTTP (Native as LZ4 frames, `RowBinary` in ClickHouse's own compression) and the native protocol.
//! Prints its two ports and serves until its standard input ends. `GET /_counts` over HTTP returns the
//! counts.

mod blocks;
mod counts;
mod cursor;
mod http;
mod kinds;
mod native;
mod queries;
mod rowbinary;
mod tcp;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

/// Handler of a connection.
type Serve = fn(TcpStream) -> std::io::Result<()>;

fn main() -> std::io::Result<()> {
    let (http, tcp) = (listen(http::serve)?, listen(tcp::serve)?);
    println!("{http} {tcp}");
    std::io::stdout().flush()?;
    // The benchmark holds the other end: however it ends, the sink ends with it.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn listen(serve: Serve) -> std::io::Result<u16> {
    // A free port, so that no other program on the machine can occupy it.
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        // An error of one `accept`, such as a reset connection, must not end the listener.
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
