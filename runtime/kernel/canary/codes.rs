// How a canary ends, one status for each step: the program and the keeper's reading of it share this file.

/// It was not told what to do.
const UNTOLD: i32 = 1;
/// No datagram socket.
const NO_DATAGRAM_SOCKET: i32 = 10;
/// The question could not be sent.
const UNASKED: i32 = 11;
/// No answer came in time.
const UNANSWERED: i32 = 12;
/// The answer holds no address.
const NO_ADDRESS: i32 = 13;
/// No stream socket.
const NO_STREAM_SOCKET: i32 = 20;
/// Connected, and nothing came in time.
const SILENT: i32 = 30;
/// Connected, and closed without a word.
const CLOSED: i32 = 31;
/// Connected, and another word than the one that was agreed on.
const OTHER_WORD: i32 = 32;
/// The name server's answer was this code, added to the status.
const ANSWER_CODE: i32 = 40;
/// `connect` failed with this errno, added to the status.
const CONNECT_ERRNO: i32 = 100;
