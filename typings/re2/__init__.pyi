class error(Exception): ...

class Options:
    log_errors: bool
    max_mem: int
    never_capture: bool

class _Match: ...

class _Regexp:
    programsize: int
    def fullmatch(self, text: str) -> _Match | None: ...

def compile(pattern: str, options: Options | None = ...) -> _Regexp: ...
