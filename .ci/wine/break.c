/* Sends Ctrl-Break to a group of processes, as a console does: break GROUP. (Ctrl-C reaches only the group that sends it.) */
#include <stdlib.h>
#include <windows.h>

int main(int count, char **arguments) { return count == 2 && GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, strtoul(arguments[1], 0, 10)) ? 0 : 1; }
