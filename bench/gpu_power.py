"""Clock and energy of a GPU while something runs on it, from NVML."""
import ctypes
import threading
import time

SM_CLOCK = 1  # NVML_CLOCK_SM


class Meter:
    """with Meter() as m: … then m.seconds, m.joules, m.watts and m.mhz, the median clock of samples 20 ms apart.

    The clock of the first quarter is left out: the board takes that long to find the clock that fits its power limit."""

    def __init__(self, device=0):
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self._check(self.nvml.nvmlInit_v2())
        self.handle = ctypes.c_void_p()
        self._check(self.nvml.nvmlDeviceGetHandleByIndex_v2(device, ctypes.byref(self.handle)))

    @staticmethod
    def _check(status):
        if status:
            raise RuntimeError(f"NVML returned {status}")

    def _joules(self):
        millijoules = ctypes.c_ulonglong()
        self._check(self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle, ctypes.byref(millijoules)))
        return millijoules.value / 1000

    def _clock(self):
        mhz = ctypes.c_uint()
        self._check(self.nvml.nvmlDeviceGetClockInfo(self.handle, SM_CLOCK, ctypes.byref(mhz)))
        return mhz.value

    def _sample(self):
        while not self._stop.wait(0.02):
            self._clocks.append(self._clock())

    def __enter__(self):
        self._clocks, self._stop = [], threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._begin, self._begin_joules = time.perf_counter(), self._joules()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.joules = self._joules() - self._begin_joules
        self.seconds = time.perf_counter() - self._begin
        self._stop.set()
        self._thread.join()
        clocks = sorted(self._clocks[len(self._clocks) // 4:])
        self.mhz = clocks[len(clocks) // 2] if clocks else 0
        self.watts = self.joules / self.seconds
