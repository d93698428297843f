// How a process that runs plugins ends when it does so by itself: whoever watches over it (death.h) believes
// no other end.
#pragma once

#include "base/result.h"

namespace tenon::cli {

// Before the first plugin is loaded: one that writes to a socket whose peer is gone gets an error, as it does
// in any program that serves sockets, and does not end the process. So does what this process prints.
void ignore_closed_pipes();

// Error E011 where not all that was printed could be written.
Status check_output();

// Writes out what was printed. Where nobody reads standard output any more, ends the process by SIGPIPE, as
// other programs end then.
void flush_output();

// Ends the process with this code. What is left to be done when a program exits, such as destructors of
// plugins' objects, is not done: for a plugin the end was its deinit, and this one's end is told already.
[[noreturn]] void end_process(int code);

// Ends the process by this signal.
[[noreturn]] void end_by(int signal);

}  // namespace tenon::cli
