//! Reading an answer inside three walls: size, total time, idle time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::Response;
use tokio::time::{Instant, timeout_at};

use super::error::{Error, authority};

/// A body that sends nothing for this long is given up before its deadline.
const IDLE: Duration = Duration::from_secs(30);

/// Reads a whole body: at most `max_bytes` after decompression, until `deadline`.
///
/// The cap is checked piece by piece as the body is unpacked, so a bomb of zeros costs one piece
/// more than the cap, not its full size.
pub async fn read_limited(
    response: Response,
    max_bytes: usize,
    deadline: Instant,
) -> Result<Bytes, Error> {
    let target = authority(response.url());
    let too_large = || Error::TooLarge { target: target.clone(), limit: max_bytes };
    // What the header promises is only good for giving up early.
    if response.content_length().is_some_and(|promised| promised > max_bytes as u64) {
        return Err(too_large());
    }
    match read_up_to(response, max_bytes, deadline).await? {
        (body, false) => Ok(body),
        (_, true) => Err(too_large()),
    }
}

/// Reads the first `max_bytes` of a body, until `deadline`; true when there was more.
pub async fn read_up_to(
    response: Response,
    max_bytes: usize,
    deadline: Instant,
) -> Result<(Bytes, bool), Error> {
    let mut pieces = Pieces::of(response);
    let mut body = BytesMut::new();
    loop {
        let Some(piece) = pieces.next(deadline.min(Instant::now() + IDLE)).await? else {
            return Ok((body.freeze(), false));
        };
        let room = max_bytes - body.len();
        body.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.len() > room {
            return Ok((body.freeze(), true));
        }
    }
}

/// A body piece by piece, for whoever has walls of its own.
#[derive(Debug)]
pub struct Pieces {
    response: Response,
    target: String,
}

impl Pieces {
    /// Of an answer.
    pub fn of(response: Response) -> Self {
        Self { target: authority(response.url()), response }
    }

    /// The next piece after decompression; `None` at the end.
    pub async fn next(&mut self, until: Instant) -> Result<Option<Bytes>, Error> {
        let piece = timeout_at(until, self.response.chunk()).await;
        piece
            .map_err(|_| Error::Timeout { target: self.target.clone(), sent: true })?
            .map_err(|error| Error::of(error, &self.target))
    }
}
