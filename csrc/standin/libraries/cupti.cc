// CUPTI says of everything that it is not there; of why, in words.

extern "C" {

int cuptiGetResultString(int /*result*/, const char** text) {
  if (text == nullptr) return 1;  // CUPTI_ERROR_INVALID_PARAMETER
  *text = "the stand-in has no profiler of the device";
  return 0;
}

}  // extern "C"
